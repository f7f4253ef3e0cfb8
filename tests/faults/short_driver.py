"""Runs ``rudder`` with a quarter of the engine's patience, for tests that wait it out."""

from __future__ import annotations

import sys
from dataclasses import replace

from rudder.cli.app import main
from rudder.distdgl import engine

SHORTER = 4

if __name__ == "__main__":
    engine.SILENCE_S /= SHORTER
    engine.DEADLINES = tuple(replace(d, seconds=d.seconds / SHORTER) for d in engine.DEADLINES)
    sys.exit(main(sys.argv[1:]))
