"""Open Graph Benchmark (Hu et al., NeurIPS 2020), read from its raw files: CSV or binary."""

from __future__ import annotations

import csv
import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.dataset import Graph
from rudder.errors import DatasetError, UsageError

from .assemble import assemble
from .cleaning import EdgeRules
from .files import read_npz
from .published import compared, raw_folder
from .splits import Splits, splits_from_ids
from .tables import read_columns, read_edges, read_matrix, sniff

RAW_FILES = ("raw/edge.csv.gz", "raw/data.npz")
Int64s = npt.NDArray[np.int64]


def arxiv(
    from_: str | None = None,
    yes: bool = False,
    split: str | None = None,
    add_reverse: bool = True,
    drop_self_loops: bool = True,
    drop_duplicates: bool = True,
) -> Graph:
    """ogbn-arxiv: citations between papers; the label is the subject area.

    Args:
        from_: folder with ``raw/`` and ``split/`` (``from=`` in a spec); without: download.
        yes: agree to a large download.
        split: folder under ``split/``; without: the only one.
        add_reverse, drop_self_loops, drop_duplicates: cleaning of the edges.

    Raises:
        DatasetError, UsageError: files that are missing, truncated or do not fit; no network.
    """
    rules = EdgeRules(drop_self_loops, drop_duplicates, add_reverse)
    return _load("ogbn-arxiv", from_, yes, split, rules)


def products(
    from_: str | None = None,
    yes: bool = False,
    split: str | None = None,
    add_reverse: bool = True,
    drop_self_loops: bool = True,
    drop_duplicates: bool = True,
) -> Graph:
    """ogbn-products: products bought together; the label is the category.

    Its raw files hold each edge in one direction. Parameters and errors as :func:`arxiv`.
    """
    rules = EdgeRules(drop_self_loops, drop_duplicates, add_reverse)
    return _load("ogbn-products", from_, yes, split, rules)


def papers100m(
    from_: str | None = None,
    yes: bool = False,
    split: str | None = None,
    add_reverse: bool = True,
    drop_self_loops: bool = True,
    drop_duplicates: bool = True,
) -> Graph:
    """ogbn-papers100M: citations; only arXiv papers (1.4 %) are labelled.

    Its raw files are binary. Parameters and errors as :func:`arxiv`.
    """
    rules = EdgeRules(drop_self_loops, drop_duplicates, add_reverse)
    return _load("ogbn-papers100M", from_, yes, split, rules)


def _load(name: str, from_: str | None, yes: bool, split: str | None, rules: EdgeRules) -> Graph:
    aliases = (name.replace("-", "_"), _catalogue(name, "download_name"))
    folder = raw_folder(name, from_, yes, partial(_urls, name), RAW_FILES, aliases)
    return compared(name, read_ogb(folder, name, split, rules))


def read_ogb(folder: Path, name: str, split: str | None, rules: EdgeRules) -> Graph:
    """A homogeneous node-classification graph in OGB's raw layout.

    Args:
        folder: holds ``raw/`` (``edge``, ``node-feat``, ``node-label``, ``num-node-list``,
            ``num-edge-list``, each .csv.gz; or ``data.npz`` and ``node-label.npz``) and
            ``split/NAME/{train,valid,test}.csv.gz``.

    Raises:
        DatasetError: files that are missing, truncated or contradict each other.
        UsageError: several splits and none chosen, or one that is not there.
    """
    raw = folder / "raw"
    src, dst, features, nodes = _binary(raw) if (raw / "data.npz").exists() else _csv(raw)
    if features.shape[0] != nodes:
        raise DatasetError(f"{raw}: {features.shape[0]} rows of features for {nodes} nodes")
    return assemble(
        name,
        src,
        dst,
        nodes,
        where=str(raw),
        rules=rules,
        features=features,
        labels=_labels(raw),
        splits=_splits(folder / "split", split, nodes),
        meta={"path": str(folder)},
    )


def _csv(raw: Path) -> tuple[Int64s, Int64s, npt.NDArray[Any], int]:
    nodes = _one_count(raw / "num-node-list.csv.gz")
    edges = _one_count(raw / "num-edge-list.csv.gz")
    src, dst = read_edges(raw / "edge.csv.gz")
    if src.size != edges:
        raise DatasetError(
            f"{raw / 'edge.csv.gz'} holds {src.size} edges where num-edge-list says {edges}: "
            "it seems truncated"
        )
    return src, dst, read_matrix(raw / "node-feat.csv.gz"), nodes


def _binary(raw: Path) -> tuple[Int64s, Int64s, npt.NDArray[Any], int]:
    found = read_npz(
        raw / "data.npz", required=("edge_index", "node_feat", "num_nodes_list", "num_edges_list")
    )
    counts = found["num_nodes_list"].ravel(), found["num_edges_list"].ravel()
    pairs = found["edge_index"]
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        raise DatasetError(
            f"{raw / 'data.npz'}: edge_index must be [2, E], found {list(pairs.shape)}"
        )
    if counts[0].size != 1 or counts[1].tolist() != [pairs.shape[1]]:
        raise DatasetError(
            f"{raw / 'data.npz'} must hold one graph whose edges are as many as told"
        )
    return pairs[0], pairs[1], found["node_feat"], int(counts[0][0])


def _one_count(path: Path) -> int:
    (counts,) = read_columns(path, (0,), sniff(path))
    if counts.size != 1:
        raise DatasetError(f"{path} tells of {counts.size} graphs; a node-property set has one")
    return int(counts[0])


def _labels(raw: Path) -> npt.NDArray[Any]:
    if (raw / "node-label.npz").exists():
        return read_npz(raw / "node-label.npz", required=("node_label",))["node_label"]
    return read_matrix(raw / "node-label.csv.gz")


def _splits(folder: Path, chosen: str | None, nodes: int) -> Splits:
    there = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    if chosen is None and len(there) != 1:
        known = ", ".join(there) or "none"
        raise UsageError(f"{folder} holds several splits or none ({known}); choose with split=NAME")
    name = chosen if chosen is not None else there[0]
    if name not in there:
        raise UsageError(f"{folder} has no split {name!r}; it has: {', '.join(there) or 'none'}")
    lists = []
    for part in ("train", "valid", "test"):
        path = folder / name / f"{part}.csv.gz"
        lists.append(read_columns(path, (0,), sniff(path))[0])
    return splits_from_ids(lists[0], lists[1], lists[2], nodes, str(folder / name))


def _catalogue(name: str, key: str) -> str:
    """A fact from the catalogue inside the ``ogb`` package.

    The package is not imported: doing so starts a thread that asks the network for its version.
    """
    spec = importlib.util.find_spec("ogb")
    if spec is None or not spec.submodule_search_locations:
        raise DatasetError("the package ogb is not installed; it tells where its graphs are")
    path = Path(spec.submodule_search_locations[0]) / "nodeproppred" / "master.csv"
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row[""] == key:
                return row[name]
    raise DatasetError(f"{path} has no row {key!r}; this version of ogb is not understood")


def _urls(name: str) -> list[str]:
    return [_catalogue(name, "url")]
