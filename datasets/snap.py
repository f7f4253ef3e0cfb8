"""Orkut and Friendster from SNAP (Yang and Leskovec, ICDM 2012): edges and communities as text."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.dataset import Graph
from rudder.errors import DatasetError, UsageError

from .assemble import assemble
from .cleaning import EdgeRules
from .node_ids import IdMap
from .published import compared, raw_folder
from .tables import read_edges, read_longest_rows

SNAP = "https://snap.stanford.edu/data/bigdata/communities"


def orkut(
    from_: str | None = None,
    yes: bool = False,
    classes: int = 32,
    multilabel: bool = False,
    feature_width: int = 64,
    train: float = 0.6,
    val: float = 0.2,
    seed: int = 0,
    add_reverse: bool = True,
    drop_self_loops: bool = True,
    drop_duplicates: bool = True,
) -> Graph:
    """Orkut: friendship; labels are the largest user groups; features are derived.

    Args:
        from_: folder with ``*.ungraph.txt`` and ``*.cmty.txt``, gzip or not (``from=`` in a
            spec); without: download.
        yes: agree to a large download.
        classes: how many of the largest communities are classes, by size.
        multilabel: a node has every such community it is in; else the largest one. A node in none
            is unlabelled.
        feature_width: width of the features, which are derived from the structure.
        train, val, seed: random splits of the labelled nodes; the rest is for testing.
        add_reverse, drop_self_loops, drop_duplicates: cleaning of the edges.

    Raises:
        DatasetError, UsageError: files that are missing, truncated or do not fit; no network.
    """
    rules = EdgeRules(drop_self_loops, drop_duplicates, add_reverse)
    return _load("orkut", from_, yes, classes, multilabel, rules, feature_width=feature_width,
                 train=train, val=val, seed=seed)  # fmt: skip


def friendster(
    from_: str | None = None,
    yes: bool = False,
    classes: int = 32,
    multilabel: bool = False,
    feature_width: int = 64,
    train: float = 0.6,
    val: float = 0.2,
    seed: int = 0,
    add_reverse: bool = True,
    drop_self_loops: bool = True,
    drop_duplicates: bool = True,
) -> Graph:
    """Friendster: friendship; parameters and errors as :func:`orkut`."""
    rules = EdgeRules(drop_self_loops, drop_duplicates, add_reverse)
    return _load("friendster", from_, yes, classes, multilabel, rules,
                 feature_width=feature_width, train=train, val=val, seed=seed)  # fmt: skip


def _load(
    name: str,
    from_: str | None,
    yes: bool,
    classes: int,
    multilabel: bool,
    rules: EdgeRules,
    **options: Any,
) -> Graph:
    if classes < 1:
        raise UsageError(f"classes={classes} must be a whole number of at least 1")
    folder = raw_folder(
        name, from_, yes, partial(_urls, name), ("*.ungraph.txt", "*.ungraph.txt.gz")
    )
    edges = _one(folder, "ungraph.txt", f"com-{name}.")
    src, dst = read_edges(edges)
    ids = IdMap(src, dst, None, str(edges))
    groups = _one(folder, "cmty.txt", f"com-{name}.all.")
    graph = assemble(
        name,
        ids(src, str(edges)),
        ids(dst, str(edges)),
        ids.nodes,
        where=str(edges),
        rules=rules,
        features=None,
        labels=community_labels(groups, ids, classes, multilabel),
        classes=classes,
        splits=None,
        meta={"path": str(edges), "labels": f"the largest communities of {groups.name}"},
        node_ids=ids.written,
        **options,
    )
    return compared(name, graph)


def community_labels(path: Path, ids: IdMap, classes: int, multilabel: bool) -> npt.NDArray[Any]:
    """Labels from the ``classes`` largest communities; NaN for nodes in none of them.

    Returns:
        float32 ``[N]`` (class 0 is the largest community), or ``[N, C]`` of 0, 1 and NaN.

    Raises:
        DatasetError: a truncated file, a line that holds no numbers, or a node not in the graph.
    """
    groups = [ids(group, str(path)) for group in read_longest_rows(path, classes)]
    if multilabel:
        labels = np.full((ids.nodes, len(groups)), np.nan, dtype=np.float32)
        labels[np.unique(np.concatenate(groups))] = 0
        for number, members in enumerate(groups):
            labels[members, number] = 1
        return labels
    single = np.full(ids.nodes, np.nan, dtype=np.float32)
    for number, members in reversed(list(enumerate(groups))):  # the largest is written last
        single[members] = number
    return single


def _one(folder: Path, kind: str, preferred: str) -> Path:
    found = sorted(p for p in folder.glob(f"*.{kind}*") if p.suffix in (".txt", ".gz"))
    best = [p for p in found if p.name.startswith(preferred)] or found
    if len(best) != 1:
        names = ", ".join(p.name for p in best) or "none"
        raise DatasetError(f"{folder} must hold one file *.{kind} (or .gz), found: {names}")
    return best[0]


def _urls(name: str) -> list[str]:
    return [f"{SNAP}/com-{name}.{part}.txt.gz" for part in ("ungraph", "all.cmty")]
