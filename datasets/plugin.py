"""Registers the graphs (one TOML spec each) and the partitioners."""

from __future__ import annotations

from pathlib import Path

from rudder.registries import DATASETS

for _spec in sorted((Path(__file__).parent / "specs").glob("*.toml")):
    DATASETS.register_toml(_spec)
