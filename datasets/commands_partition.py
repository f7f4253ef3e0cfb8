"""``rudder partition``: cut a graph into DistDGL's format and tell what came out."""

from __future__ import annotations

from typing import Annotated

import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, Quiet, Verbose
from rudder.cli.output import emit, progress
from rudder.home import Home
from rudder.partition import ensure_partition
from rudder.scenario import Scenario

_DEFAULTS = Scenario.make()


def partition(
    graph: Annotated[str, typer.Argument(help="dataset spec, NAME:key=value,…")],
    parts: Annotated[int, typer.Option(min=1, help="partitions = hosts")] = _DEFAULTS.parts,
    method: Annotated[
        str, typer.Option(help="partitioner spec: metis, random, …")
    ] = _DEFAULTS.partition_method,
    seed: Annotated[int, typer.Option(min=0, help="another seed, another partition")] = (
        _DEFAULTS.seed
    ),
    home: HomeDir = None,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> None:
    """Cut a graph into DistDGL partitions; made once, then found by content.

    Prints edge cut, halo and balance. 'beyond halo' is the share of sampled remote nodes that lie
    beyond the one-hop halo (fan-out 10,25, estimated).
    """
    with progress(quiet=quiet) as report:
        made = ensure_partition(graph, parts, method, seed, Home.resolve(home).partitions, report)
    facts = {**made.facts(), "halo_share": made.halo_share, "folder": made.folder}
    if as_json:
        emit(facts, as_json=True)
        return
    per_part = ("part_nodes", "part_edges", "halo_nodes", "part_train")
    rows = [
        {"part": part, **{key.removeprefix("part_"): facts[key][part] for key in per_part}}
        for part in range(made.parts)
    ]
    emit(rows, as_json=False, title=f"{made.graph} in {made.parts} parts by {made.method}")
    keys = (
        "nodes",
        "edges",
        "edge_cut",
        "halo_share",
        "balance",
        "beyond_halo",
        "digest",
        "folder",
    )
    emit({key: facts[key] for key in keys}, as_json=False)
