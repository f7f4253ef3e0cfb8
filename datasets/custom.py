"""``custom``: anybody's graph, from an edge list or from one .npz."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rudder.dataset import Graph
from rudder.errors import DatasetError, UsageError

from .assemble import assemble
from .cleaning import EdgeRules
from .files import NUMPY_MAGIC, ZIP_MAGIC, read_npy, read_npz, read_sparse, reading, user_path
from .node_ids import IdMap
from .splits import Splits, splits_from_ids
from .tables import Column, read_columns, read_edges, sniff

Array = npt.NDArray[Any]
FEATURE_NAMES = ("features", "feats", "feat", "x", "arr_0")
LABEL_NAMES = ("labels", "label", "y", "arr_0")
SPLIT_NAMES = {"train": ("train",), "validation": ("val", "valid", "validation"), "test": ("test",)}


def custom(
    edges: str | None = None,
    npz: str | None = None,
    features: str | None = None,
    labels: str | None = None,
    splits: str | None = None,
    name: str | None = None,
    source: Column = 0,
    target: Column = 1,
    label_column: Column | None = None,
    classes: int | None = None,
    add_reverse: bool | None = None,
    drop_self_loops: bool = True,
    drop_duplicates: bool = True,
    train: float = 0.6,
    val: float = 0.2,
    seed: int = 0,
    feature_width: int = 64,
    degree_classes: int = 8,
) -> Graph:
    """A graph from files of the user.

    Node numbers of an edge list may be sparse: :class:`rudder_datasets.node_ids.IdMap` says what
    they mean; the map is kept in :attr:`Graph.node_ids`.

    Args:
        edges: edge list: CSV or SNAP text, gzip too (:mod:`rudder_datasets.tables`).
        npz: archive with ``edge_index`` [2, E], and optionally ``num_nodes``, ``features`` [N, F],
            ``labels`` [N] or [N, C], and ``train_mask``, ``val_mask``, ``test_mask`` (bool [N] or
            packed bits), ``meta`` (JSON text: source, licence, description). The parameters
            below override its parts.
        features: .npy [N, F], .npz (an array named like one of FEATURE_NAMES, its only one, or a
            scipy sparse matrix); without: derived from the structure.
        labels: .npy, .npz, or a text table: one label per node in order, or node number and label;
            NaN, an empty field and -1 mean unlabelled; without: groups of the in-degree.
        splits: .npz of masks or node numbers (train, val, test), or a text table of node number
            and word (train, val, test); without: shares of the labelled nodes.
        name: short name; without: the file's.
        source, target: columns of the edge list, by name or number from 0.
        label_column: column of the label table, likewise; without: the last.
        classes: number of classes, if not the largest label + 1.
        add_reverse: make the graph undirected; by default an edge list is (most lists hold each
            edge once), and the ``edge_index`` of an archive is taken as it is.
        drop_self_loops, drop_duplicates: further cleaning of the edges.
        train, val: shares for splits drawn by ``seed``; the rest is for testing.
        feature_width, degree_classes: size of derived features and labels.

    Raises:
        UsageError: neither or both of edges and npz, a path or column that does not exist.
        DatasetError: files that are truncated, unsafe, or do not fit each other.
    """
    if (edges is None) == (npz is None):
        raise UsageError("custom needs edges=FILE or npz=FILE, one of them")
    for key, value, least in (("degree_classes", degree_classes, 2), ("classes", classes, 1)):
        if value is not None and value < least:
            raise UsageError(f"{key}={value} must be a whole number of at least {least}")
    path = user_path(edges or npz or "", "edges" if npz is None else "npz")
    base = _from_npz(path) if npz is not None else _Base(*read_edges(path, source, target))
    feature_array, label_table = base.features, base.labels
    if features is not None:
        feature_array = _features(user_path(features, "features"))
    if labels is not None:
        label_table = _labels(user_path(labels, "labels"), label_column)

    rows = base.nodes
    for array in (feature_array, label_table if isinstance(label_table, np.ndarray) else None):
        if array is not None and rows is None:
            rows = int(array.shape[0])
    ids = IdMap(base.src, base.dst, rows, str(path))
    if isinstance(label_table, _ByNode):
        label_table = label_table.spread(ids)
    if splits is not None:
        chosen: Splits | None = _splits(user_path(splits, "splits"), ids)
    else:
        chosen = _masks(base.masks, ids.nodes, path)
    return assemble(
        name or re.sub(r"[^A-Za-z0-9_-]+", "_", path.name.split(".")[0]) or "custom",
        ids(base.src, str(path)),
        ids(base.dst, str(path)),
        ids.nodes,
        where=str(path),
        rules=EdgeRules(
            drop_self_loops, drop_duplicates, npz is None if add_reverse is None else add_reverse
        ),
        features=feature_array,
        labels=label_table,
        splits=chosen,
        classes=classes,
        train=train,
        val=val,
        seed=seed,
        feature_width=feature_width,
        degree_classes=degree_classes,
        meta={"path": str(path), **base.meta},
        node_ids=ids.written,
    )


class _Base(NamedTuple):
    """What one file brought."""

    src: npt.NDArray[np.int64]
    dst: npt.NDArray[np.int64]
    nodes: int | None = None
    features: Array | None = None
    labels: Array | _ByNode | None = None
    masks: Mapping[str, Array] = MappingProxyType({})
    meta: Mapping[str, Any] = MappingProxyType({})


def _from_npz(path: Path) -> _Base:
    masks = ("train_mask", "val_mask", "test_mask")
    found = read_npz(
        path, required=("edge_index",), optional=("num_nodes", "features", "labels", "meta", *masks)
    )
    pairs = found["edge_index"]
    if pairs.ndim != 2 or pairs.shape[0] != 2 or pairs.dtype.kind not in "iu":
        raise DatasetError(
            f"{path}: edge_index must be whole numbers [2, E], found {pairs.dtype} "
            f"{list(pairs.shape)}"
        )
    nodes = _count(found["num_nodes"], f"{path}: num_nodes") if "num_nodes" in found else None
    src, dst = pairs.astype(np.int64)
    if nodes is not None and pairs.size and int(pairs.max()) >= nodes:
        raise DatasetError(f"{path}: edge end {pairs.max()} lies outside its {nodes} nodes")
    return _Base(
        src, dst, nodes, found.get("features"), found.get("labels"),
        {name: found[name] for name in masks if name in found}, _about(found.get("meta"), path),
    )  # fmt: skip


def _count(raw: Array, where: str) -> int:
    if raw.size != 1 or raw.dtype.kind not in "iu" or raw.item() < 1:
        raise DatasetError(f"{where} must be one whole number of at least 1, found {raw.tolist()}")
    return int(raw.item())


def _about(meta: Array | None, path: Path) -> dict[str, str]:
    """Source, licence and description from the JSON text of an archive."""
    if meta is None:
        return {}
    try:
        told = json.loads(str(meta))
        return {k: str(told[k]) for k in ("source", "licence", "description") if told.get(k)}
    except (ValueError, AttributeError) as error:
        raise DatasetError(f"{path}: meta must be the text of a JSON object: {error}") from error


def _features(path: Path) -> Array:
    if _starts(path, ZIP_MAGIC):
        found = read_npz(path)
        if {"format", "shape", "data"} <= set(found):
            dense: Array = read_sparse(path).toarray()
            return dense
        return _only(found, FEATURE_NAMES, path)
    return read_npy(path)


class _ByNode(NamedTuple):
    """Labels of some nodes, by the number written for them."""

    numbers: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    path: Path

    def spread(self, ids: IdMap) -> Array:
        at = ids(self.numbers, str(self.path))
        if np.unique(at).size != at.size:
            raise DatasetError(f"{self.path} labels a node more than once")
        labels = np.full(ids.nodes, np.nan)
        labels[at] = self.values
        return labels


def _labels(path: Path, column: Column | None) -> Array | _ByNode:
    if _starts(path, ZIP_MAGIC):
        return _only(read_npz(path), LABEL_NAMES, path)
    if _starts(path, NUMPY_MAGIC) or path.suffix == ".npy":
        return read_npy(path)
    layout = sniff(path)
    last = layout.width - 1 if column is None else column
    (values,) = read_columns(path, (last,), layout, "float64")
    if layout.width == 1:
        return values
    (numbers,) = read_columns(path, (0,), layout)
    return _ByNode(numbers, values, path)


def _splits(path: Path, ids: IdMap) -> Splits:
    if _starts(path, ZIP_MAGIC):
        splits = _masks(read_npz(path), ids.nodes, path)
        if splits is None:
            raise DatasetError(f"{path} holds no train, val and test, nor masks of them")
        return splits
    layout = sniff(path)
    if layout.width < 2:
        raise DatasetError(f"{path} has one column; a split table needs node number and word")
    (numbers,) = read_columns(path, (0,), layout)
    (words,) = read_columns(path, (1,), layout, "str")
    nodes = ids(numbers, str(path))
    known = {word: split for split, names in SPLIT_NAMES.items() for word in names}
    strange = sorted({str(w) for w in words} - set(known))
    if strange:
        raise DatasetError(f"{path}: {strange[0]!r} is no split; write train, val or test")
    chosen = np.array([known[str(word)] for word in words])
    train, val, test = (nodes[chosen == split] for split in SPLIT_NAMES)
    return splits_from_ids(train, val, test, ids.nodes, str(path))


def _masks(found: Mapping[str, Array], nodes: int, path: Path) -> Splits | None:
    """Masks from arrays named like a split (``val``) or its mask (``val_mask``)."""
    masks: list[npt.NDArray[np.bool_]] = []
    for split, names in SPLIT_NAMES.items():
        for name in (f"{n}{end}" for n in names for end in ("_mask", "")):
            if name in found:
                masks.append(_mask(found[name], nodes, f"{path}: {name}"))
                break
        else:
            if masks:
                raise DatasetError(f"{path} has splits, but none for {split}")
    if masks and len(masks) < 3:
        raise DatasetError(f"{path} has splits, but none for train")
    return Splits(*masks) if masks else None


def _mask(raw: Array, nodes: int, where: str) -> npt.NDArray[np.bool_]:
    if raw.ndim == 1 and raw.dtype == np.bool_ and raw.size == nodes:
        return raw
    whole = raw.ndim == 1 and raw.dtype.kind in "iu"
    # A 0 or 1 for every node: as node numbers they would name two nodes over and over.
    sure = where.endswith("_mask") or nodes > 2
    if whole and raw.size == nodes and sure and np.isin(raw, (0, 1)).all():
        return raw.astype(np.bool_)
    if raw.ndim == 1 and raw.dtype == np.uint8 and raw.size == -(-nodes // 8):
        return np.unpackbits(raw)[:nodes].astype(np.bool_)
    if whole and not where.endswith("_mask"):
        return splits_from_ids(raw, raw[:0], raw[:0], nodes, where).train
    raise DatasetError(
        f"{where} must be a mask of {nodes} nodes (bool or packed bits) or node numbers, found "
        f"{raw.dtype} {list(raw.shape)}"
    )


def _only(found: dict[str, Array], names: tuple[str, ...], path: Path) -> Array:
    for name in names:
        if name in found:
            return found[name]
    if len(found) == 1:
        return next(iter(found.values()))
    raise DatasetError(f"{path} holds {', '.join(found)}; name the array one of {', '.join(names)}")


def _starts(path: Path, magic: bytes) -> bool:
    with reading(path), path.open("rb") as file:
        return file.read(len(magic)) == magic
