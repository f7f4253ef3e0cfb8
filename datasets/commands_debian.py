"""``rudder convert-debian``: make the bundled graph's file from Debian's package index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rudder.cli.options import AsJson, Quiet, Verbose
from rudder.cli.output import emit, progress
from rudder.errors import UsageError


def convert_debian(
    packages: Annotated[
        Path, typer.Option(help="a Packages index: plain, .gz, .xz or .bz2", show_default=False)
    ],
    sources: Annotated[
        Path, typer.Option(help="a Sources index of the same suite", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="file to write, *.npz.xz", show_default=False)],
    quiet: Quiet = False,
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> None:
    """Convert Debian's package index to the file that the dataset 'debian' reads.

    apt keeps the index in /var/lib/apt/lists ('apt-get update' fetches it; the Sources index needs
    deb-src). Only facts are taken over: no description texts.
    """
    from .debian import graph_of
    from .debian_convert import build_index, read_packages, read_sources
    from .debian_format import save_index

    out = out.resolve()
    if not out.name.endswith(".npz.xz"):
        raise UsageError(f"--out {out}: the file's name must end in .npz.xz")
    if not out.parent.is_dir():
        raise UsageError(f"--out {out}: there is no folder {out.parent}")
    with progress(quiet=quiet) as report:
        report("convert", 0.0)
        binary = read_packages(packages.resolve())
        report("convert", 0.4)
        source = read_sources(sources.resolve())
        report("convert", 0.7)
        index = build_index(binary, source)
        report("convert", 0.8)
        save_index(index, out)
        report("convert", 1.0)
    graph = graph_of(index).validated()
    emit(
        {
            "file": out,
            "bytes": out.stat().st_size,
            "sources": index.nodes - index.binaries,
            "relations": {name: len(pairs) for name, pairs in index.relations.items()},
            "nodes": graph.nodes,
            "edges": graph.edges,
            "classes": graph.classes,
            "cleaning": dict(graph.cleaning),
        },
        as_json=as_json,
    )
