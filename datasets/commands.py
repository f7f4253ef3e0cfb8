"""``rudder datasets``: which graphs there are, and the facts of one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import numpy as np
import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, Quiet, Verbose
from rudder.cli.output import emit, say
from rudder.dataset import Graph
from rudder.errors import UsageError
from rudder.registries import DATASETS
from rudder.registry import Entry
from rudder.spec import Spec

from .download import downloaded

LISTED = ("nodes", "edges", "features", "classes", "task", "licence", "download", "needs_network")
"""Facts of the specs that a listing holds; null where a graph's size is up to its parameters."""


def datasets(
    name: Annotated[
        Optional[str],  # noqa: UP045 - Typer reads it at run time
        typer.Argument(
            metavar="[NAME]", help="a graph, NAME or NAME:key=value,…", show_default=False
        ),
    ] = None,
    from_: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--from", metavar="DIR", help="read its raw files from this folder",
                     show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="agree to a large download")] = False,
    home: HomeDir = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:  # fmt: skip
    """List the graphs, or tell the facts of one.

    A graph is built, and its real numbers told, if that needs no network: generated and bundled
    graphs, downloaded ones, and any with --from DIR. --yes downloads it.
    """
    if name is None:
        if from_ is not None or yes:
            raise UsageError("--from and --yes need the NAME of a graph")
        rows = [listing(entry) for entry in DATASETS]
        emit(rows, as_json=as_json, columns=("name", *LISTED[:5], "summary"))
        if not as_json:
            say("sizes as published; 'rudder datasets NAME' tells more")
        return
    emit(facts(Spec.parse(name), from_, yes), as_json=as_json)


def listing(entry: Entry) -> dict[str, Any]:
    """One row of the list: name, summary and the facts of the spec (:data:`LISTED`)."""
    known = {key: entry.fields.get(key) for key in LISTED}
    return {"name": entry.name, "summary": entry.summary, **known}


def facts(spec: Spec, from_: Path | None, yes: bool) -> dict[str, Any]:
    """Facts of one graph, from the graph itself where it can be built without asking.

    Raises:
        UsageError, DatasetError: as its loader.
    """
    entry = DATASETS.entry(spec.name)
    given: dict[str, Any] = {"yes": True} if yes else {}
    if from_ is not None:
        given["from"] = str(from_.expanduser().resolve())
    asked = Spec(spec.name, {**spec.params, **given})
    DATASETS.check(asked)
    about = {**listing(entry), "description": entry.fields.get("description")}
    needed = _missing(entry, asked)
    if needed is not None:
        return {**about, "built": False, "to_build": needed}
    return {**about, "built": True, "spec": str(asked), **measured(DATASETS.build(asked))}


def _missing(entry: Entry, asked: Spec) -> str | None:
    """What the user would have to give before the graph can be built; None: nothing."""
    if entry.fields.get("needs_files") and not asked.params:
        return entry.summary
    if not entry.fields.get("needs_network") or {"from", "yes"} & set(asked.params):
        return None
    if downloaded(entry.name).is_dir():
        return None
    return "--from DIR reads raw files that you have; --yes downloads them"


def measured(graph: Graph) -> dict[str, Any]:
    """Numbers of a graph that was built, cleaning counts among them."""
    degree = np.bincount(graph.src, minlength=graph.nodes)
    return {
        "nodes": graph.nodes,
        "edges": graph.edges,
        "features": int(graph.features.shape[1]),
        "classes": graph.classes,
        "task": "multi-label" if graph.multilabel else "single-label",
        "mean_degree": round(graph.edges / graph.nodes, 2),
        "max_degree": int(degree.max(initial=0)),
        "train": int(np.count_nonzero(graph.train)),
        "val": int(np.count_nonzero(graph.val)),
        "test": int(np.count_nonzero(graph.test)),
        "cleaning": dict(graph.cleaning),
        "meta": dict(graph.meta),
        "digest": graph.digest(),
    }
