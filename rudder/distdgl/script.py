"""Runs ``script.py [arguments]`` as Python itself does, but for how it leaves after a failure."""

from __future__ import annotations

import sys


def main() -> None:
    from rudder.cluster.entry import run_script
    from rudder.distdgl.leaving import no_barrier_after_failure

    path, *arguments = sys.argv[1:]
    with no_barrier_after_failure():
        run_script(path, arguments)
