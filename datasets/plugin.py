"""Registers the graphs (one TOML spec each) and the partitioners."""

from __future__ import annotations

from pathlib import Path

from rudder.registries import COMMANDS, DATASETS, PARTITIONERS, TRACES

for _spec in sorted((Path(__file__).parent / "specs").glob("*.toml")):
    DATASETS.register_toml(_spec)

PARTITIONERS.register(
    "metis",
    "rudder_datasets.partition:MetisPartitioner",
    summary="METIS: few cut edges; nodes and training nodes balanced",
)
PARTITIONERS.register(
    "random",
    "rudder_datasets.partition:RandomPartitioner",
    summary="nodes dealt at random: balanced, remote-heavy",
)

TRACES.register(
    "debian-demo",
    "rudder_datasets.traces:debian_demo",
    summary="the bundled graph on four trainers",
)

COMMANDS.register(
    "datasets",
    "rudder_datasets.commands:datasets",
    summary="list graphs, or facts of one",
    fields={"section": "Look"},
)
COMMANDS.register(
    "partition",
    "rudder_datasets.commands_partition:partition",
    summary="cut a graph into DistDGL's format, cached",
    fields={"section": "Prepare"},
)
COMMANDS.register(
    "convert-debian",
    "rudder_datasets.commands_debian:convert_debian",
    summary="make the bundled graph anew from Debian's package index",
    fields={"section": "Extend"},
)
