"""Registers the built-in controllers: one TOML spec each."""

from __future__ import annotations

from pathlib import Path

from rudder.registries import CONTROLLERS

for _spec in sorted((Path(__file__).parent / "specs").glob("*.toml")):
    CONTROLLERS.register_toml(_spec)
