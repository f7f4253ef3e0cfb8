"""The bundled graph ``debian``: packages, sources and their relations, with 128 features.

The label is the archive section. Features derive from name, tags, priority, sizes, architecture
and degrees, never from the section.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.dataset import Graph

from .debian_format import RELATIONS, PackageIndex, load_index

INDEX_FILE = Path(__file__).parent / "data" / "debian.npz.xz"
FEATURES = 128
TRAIN, VAL, TEST = 0.3, 0.05, 0.15
"""Shares of the nodes. The rest is in no split: evaluating a node over the network costs as much
as training on it, and these sizes already measure accuracy to half a percent."""

_TAG_BINS = 40
_MIX = np.uint64(0x9E3779B97F4A7C15)  # golden ratio, as in splitmix64

Floats = npt.NDArray[np.float32]


def debian() -> Graph:
    """Debian bookworm (main, amd64): 63,436 binary and 34,288 source packages.

    Every relation is stored in both directions, as one edge for each pair of nodes.

    Raises:
        DatasetError: the bundled file is damaged.
    """
    return graph_of(load_index(INDEX_FILE))


def graph_of(index: PackageIndex) -> Graph:
    """The graph of any package index, for the loader and the converter's tests."""
    nodes = index.nodes
    pairs = np.concatenate([index.relations[relation] for relation in RELATIONS])
    loops = int(np.count_nonzero(pairs[:, 0] == pairs[:, 1]))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    codes = np.concatenate([pairs[:, 0] * nodes + pairs[:, 1], pairs[:, 1] * nodes + pairs[:, 0]])
    edges = np.unique(codes)
    train, val, test = _split(index)
    return Graph(
        name="debian",
        src=edges // nodes,
        dst=edges % nodes,
        features=_features(index),
        labels=index.section.astype(np.int64),
        train=train,
        val=val,
        test=test,
        classes=len(index.section_names),
        cleaning={
            "self_loops": loops,
            "duplicates": int(codes.size - edges.size),
            "reverse_edges_added": int(pairs.shape[0]),
        },
        meta={
            "source": "package index of Debian bookworm, main, amd64 and source",
            "licence": "facts of the Debian archive; no single licence is stated for them",
            "direction": "both directions of every relation are stored",
            "classes": index.section_names,
        },
    )


def _split(index: PackageIndex) -> tuple[npt.NDArray[np.bool_], ...]:
    """Train, validation and test masks by the rank of a checksum of the name."""
    texts = (
        f"{'binary' if node < index.binaries else 'source'} {name}"
        for node, name in enumerate(index.names)
    )
    rank = np.empty(index.nodes, np.int64)
    checksums = np.fromiter((zlib.crc32(text.encode()) for text in texts), np.int64, index.nodes)
    rank[np.argsort(checksums, kind="stable")] = np.arange(index.nodes)
    share = rank / index.nodes
    return (
        share < TRAIN,
        (share >= TRAIN) & (share < TRAIN + VAL),
        (share >= TRAIN + VAL) & (share < TRAIN + VAL + TEST),
    )


def _features(index: PackageIndex) -> Floats:
    numbers = _numbers(index)
    tags = _tag_bins(index, _TAG_BINS)
    names = _name_bins(index.names, FEATURES - _TAG_BINS - numbers.shape[1])
    return np.ascontiguousarray(np.hstack([numbers, tags, names]))


def _numbers(index: PackageIndex) -> Floats:
    """Sizes, degrees, priority and the shape of the name, each with mean 0 and deviation 1."""
    nodes = index.nodes
    columns: list[npt.NDArray[Any]] = [
        np.arange(nodes) < index.binaries,
        index.any_architecture,
        index.multi_arch,
        np.log1p(index.size),
        np.log1p(index.installed_size),
        np.log1p(index.tag_counts.astype(np.float64)),
        np.array([len(name) for name in index.names]),
        np.array([name.count("-") for name in index.names]),
        np.array([sum(map(name.count, "0123456789")) for name in index.names]),
    ]
    columns += [index.priority == number for number in range(len(index.priority_names))]
    for relation in RELATIONS:
        for side in (0, 1):
            ends = index.relations[relation][:, side]
            columns.append(np.log1p(np.bincount(ends, minlength=nodes)))
    table = np.stack(columns, axis=1).astype(np.float64)
    deviation = table.std(axis=0)
    table = (table - table.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    return table.astype(np.float32)


def _tag_bins(index: PackageIndex, bins: int) -> Floats:
    """Signed hashing of the tags: float32 ``[N, bins]``, rows of length 1 (or 0)."""
    codes = [zlib.crc32(tag.encode()) for tag in index.tag_names]
    hashes = np.array(codes, np.uint64)[index.tags]
    rows = np.repeat(np.arange(index.nodes), index.tag_counts)
    return _signed_bins(rows, hashes, index.nodes, bins)


def _name_bins(names: tuple[str, ...], bins: int) -> Floats:
    """Signed hashing of the three-letter windows of ``^name$``: rows of length 1."""
    text = np.frombuffer("".join(f"^{name}$" for name in names).encode(), np.uint8)
    lengths = np.array([len(name) for name in names])  # windows: two marks more, two ends less
    code = text.astype(np.uint64)
    code = (code[:-2] << np.uint64(16)) | (code[1:-1] << np.uint64(8)) | code[2:]
    starts = np.cumsum(lengths + 2) - (lengths + 2)
    rows = np.repeat(np.arange(len(names)), lengths)
    within = np.arange(rows.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return _signed_bins(rows, code[starts[rows] + within], len(names), bins)


def _signed_bins(
    rows: npt.NDArray[np.int64], keys: npt.NDArray[np.uint64], nodes: int, bins: int
) -> Floats:
    mixed = keys * _MIX  # wraps: a multiplicative hash; its high bits are the good ones
    place = (mixed >> np.uint64(40)) % np.uint64(bins)
    sign = 1.0 - 2.0 * ((mixed >> np.uint64(39)) & np.uint64(1))
    table = np.bincount(rows * bins + place.astype(np.int64), sign, nodes * bins)
    table = table.reshape(nodes, bins)
    length = np.sqrt((table**2).sum(axis=1, keepdims=True))
    return (table / np.maximum(length, 1)).astype(np.float32)
