"""Registers the suites: one TOML file each."""

from __future__ import annotations

from pathlib import Path

from rudder.suite import register_suites

register_suites(Path(__file__).parent / "suites")
