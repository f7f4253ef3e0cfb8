"""Yelp, Flickr (GraphSAINT's layout, Zeng et al., ICLR 2020) and Reddit (DGL's or GraphSAINT's)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.dataset import Graph
from rudder.errors import DatasetError

from .assemble import as_features, assemble
from .cleaning import EdgeRules
from .features import Floats, standardise
from .files import read_json, read_npy, read_npz, read_sparse
from .published import compared, raw_folder
from .splits import Splits, splits_from_ids

Array = npt.NDArray[Any]
FULL = "adj_full.npz"
REDDIT = "reddit_data.npz"


def yelp(
    from_: str | None = None,
    yes: bool = False,
    standardised: bool = True,
    add_reverse: bool = True,
    drop_self_loops: bool = True,
    drop_duplicates: bool = True,
) -> Graph:
    """Yelp: friendship of reviewers; multi-label (kinds of businesses).

    Args:
        from_: folder with ``adj_full.npz``, ``feats.npy``, ``class_map.json``, ``role.json``
            (``from=`` in a spec); without: download.
        yes: agree to a large download.
        standardised: scale features to mean 0 and deviation 1 over the training nodes.
        add_reverse, drop_self_loops, drop_duplicates: cleaning of the edges.

    Raises:
        DatasetError, UsageError: files that are missing, truncated or do not fit; no network.
    """
    rules = EdgeRules(drop_self_loops, drop_duplicates, add_reverse)
    return _load("yelp", from_, yes, standardised, rules)


def flickr(
    from_: str | None = None,
    yes: bool = False,
    standardised: bool = True,
    add_reverse: bool = True,
    drop_self_loops: bool = True,
    drop_duplicates: bool = True,
) -> Graph:
    """Flickr: images that share properties; the label is a group of tags.

    Parameters and errors as :func:`yelp`.
    """
    rules = EdgeRules(drop_self_loops, drop_duplicates, add_reverse)
    return _load("flickr", from_, yes, standardised, rules)


def reddit(
    from_: str | None = None,
    yes: bool = False,
    standardised: bool = False,
    add_reverse: bool = True,
    drop_self_loops: bool = True,
    drop_duplicates: bool = True,
) -> Graph:
    """Reddit (Hamilton et al., NeurIPS 2017): posts that share commenters; the label is the forum.

    Reads ``reddit_data.npz`` and ``reddit_graph.npz``, or GraphSAINT's layout. Its features come
    standardised. Parameters and errors as :func:`yelp`.
    """
    rules = EdgeRules(drop_self_loops, drop_duplicates, add_reverse)
    return _load("reddit", from_, yes, standardised, rules)


def _load(name: str, from_: str | None, yes: bool, standardised: bool, rules: EdgeRules) -> Graph:
    folder = raw_folder(name, from_, yes, partial(_urls, name), (FULL, REDDIT), ("raw",))
    if (folder / REDDIT).exists():
        return compared(name, read_dgl_reddit(folder, name, standardised, rules))
    return compared(name, read_saint(folder, name, standardised, rules))


def read_saint(folder: Path, name: str, standardised: bool, rules: EdgeRules) -> Graph:
    """A graph in GraphSAINT's layout.

    ``class_map.json`` maps node numbers to a class, or to a list of 0 and 1 (multi-label); a node
    that it leaves out is unlabelled. ``role.json`` holds node numbers under tr, va and te.

    Raises:
        DatasetError: files that are missing, truncated or do not fit each other.
    """
    adjacency = read_sparse(folder / FULL)
    nodes = _square(adjacency, folder / FULL)
    path = folder / "role.json"
    roles = read_json(path)
    if not {"tr", "va", "te"} <= set(roles):
        raise DatasetError(f"{path} must hold tr, va and te, found {', '.join(roles)}")
    train, val, test = (_whole(roles[role], f"{path}: {role}") for role in ("tr", "va", "te"))
    splits = splits_from_ids(train, val, test, nodes, str(path))
    features = _scaled(read_npy(folder / "feats.npy"), splits, standardised, folder / "feats.npy")
    labels = _labels(read_json(folder / "class_map.json"), nodes, folder / "class_map.json")
    return assemble(
        name, adjacency.row, adjacency.col, nodes, where=str(folder), rules=rules,
        features=features, labels=labels, splits=splits, meta={"path": str(folder)},
    )  # fmt: skip


def read_dgl_reddit(folder: Path, name: str, standardised: bool, rules: EdgeRules) -> Graph:
    """Reddit as DGL publishes it: ``node_types`` 1, 2 and 3 are train, validation and test.

    Raises:
        DatasetError: files that are missing, truncated or do not fit each other.
    """
    adjacency = read_sparse(folder / "reddit_graph.npz")
    nodes = _square(adjacency, folder / "reddit_graph.npz")
    path = folder / REDDIT
    found = read_npz(path, required=("feature", "label", "node_types"))
    types = found["node_types"]
    if types.shape != (nodes,):
        raise DatasetError(f"{path}: node_types must be [{nodes}], found {list(types.shape)}")
    splits = Splits(types == 1, types == 2, types == 3)
    return assemble(
        name, adjacency.row, adjacency.col, nodes, where=str(folder), rules=rules,
        features=_scaled(found["feature"], splits, standardised, path), labels=found["label"],
        splits=splits, meta={"path": str(folder)},
    )  # fmt: skip


def _square(adjacency: Any, path: Path) -> int:
    if adjacency.shape[0] != adjacency.shape[1]:
        raise DatasetError(f"{path} must be square, found {list(adjacency.shape)}")
    return int(adjacency.shape[0])


def _scaled(raw: Array, splits: Splits, standardised: bool, path: Path) -> Floats:
    features = as_features(raw, str(path))
    if not standardised:
        return features
    if features.shape[0] != splits.train.size:
        raise DatasetError(f"{path}: {features.shape[0]} rows for {splits.train.size} nodes")
    return standardise(features, splits.train)


def _labels(class_map: Mapping[str, Any], nodes: int, path: Path) -> Array:
    try:
        numbers = np.array([int(key) for key in class_map], dtype=np.int64)
        values = np.array(list(class_map.values()), dtype=np.float64)  # ragged lists raise
    except (ValueError, TypeError) as error:
        raise DatasetError(
            f"{path} must map node numbers to classes, or all to lists of one length: {error}"
        ) from error
    if numbers.size and (numbers.min() < 0 or numbers.max() >= nodes):
        raise DatasetError(f"{path} labels node {numbers.max()} of a graph with {nodes} nodes")
    labels = np.full((nodes, *values.shape[1:]), np.nan)
    labels[numbers] = values
    return labels


def _whole(values: Any, where: str) -> npt.NDArray[Any]:
    if not isinstance(values, list):
        raise DatasetError(f"{where} must be a list of node numbers")
    # NumPy itself would cut 1.5 to 1 and read true as 1.
    strange = [value for value in values if type(value) is not int]
    if strange:
        raise DatasetError(f"{where} must be a list of node numbers, found {strange[0]!r}")
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError as error:
        raise DatasetError(f"{where} must be a list of node numbers: {error}") from error


def _urls(name: str) -> list[str]:
    """DGL knows where it keeps its copies (and heeds its variable DGL_REPO)."""
    from dgl.data.utils import _get_dgl_url

    return [_get_dgl_url(f"dataset/{name}.zip")]
