"""The bundled graph ``debian``: binary packages and their relations, with 128 features.

A package is joined to what it depends on and recommends, and to what its source needs to be built;
the label is the archive section. Features derive from name, tags, priority, sizes, architecture
and degrees, never from the section.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.dataset import Graph

from .cleaning import EdgeRules, clean_edges
from .debian_format import PackageIndex, load_index

INDEX_FILE = Path(__file__).parent / "data" / "debian.npz.xz"
FEATURES = 128
TRAIN, VAL, TEST = 0.3, 0.05, 0.15
"""Shares of the nodes. The rest is in no split: evaluating a node over the network costs as much
as training on it, and these sizes already measure accuracy to half a percent."""

_TAG_BINS = 40
_MIX = np.uint64(0x9E3779B97F4A7C15)  # golden ratio, as in splitmix64

Floats = npt.NDArray[np.float32]
Pairs = npt.NDArray[np.int64]


def debian() -> Graph:
    """Debian bookworm (main, amd64): 63,436 binary packages in 58 sections.

    Every relation is stored in both directions, as one edge for each ordered pair of packages.

    Raises:
        DatasetError: the bundled file is damaged.
    """
    return graph_of(load_index(INDEX_FILE))


def graph_of(index: PackageIndex) -> Graph:
    """The graph of any package index."""
    nodes = index.binaries
    relations = _package_relations(index)
    pairs = np.concatenate(list(relations.values()))
    src, dst, cleaning = clean_edges(pairs[:, 0], pairs[:, 1], nodes, EdgeRules(), "debian")
    sections, labels = np.unique(index.section[:nodes], return_inverse=True)
    train, val, test = _split(index.names[:nodes])
    return Graph(
        name="debian",
        src=src,
        dst=dst,
        features=_features(index, relations),
        labels=labels.astype(np.int64),
        train=train,
        val=val,
        test=test,
        classes=int(sections.size),
        cleaning=cleaning,
        meta={
            "source": "package index of Debian bookworm, main, amd64 and source",
            "licence": "facts of the Debian archive; no single licence is stated for them",
            "direction": "both directions of every relation are stored",
            "class_names": tuple(index.section_names[section] for section in sections),
        },
    )


def _package_relations(index: PackageIndex) -> dict[str, Pairs]:
    """Relations between binary packages: what a source is built with holds for all it builds."""
    built = index.relations["built-from"]
    built = built[np.argsort(built[:, 1], kind="stable")]
    needs = index.relations["build-depends"]
    first = np.searchsorted(built[:, 1], needs[:, 0], side="left")
    count = np.searchsorted(built[:, 1], needs[:, 0], side="right") - first
    row = np.repeat(np.arange(count.size), count)
    place = np.arange(row.size) - np.repeat(np.cumsum(count) - count, count)
    return {
        "depends": index.relations["depends"],
        "recommends": index.relations["recommends"],
        "built-with": np.stack([built[first[row] + place, 0], needs[row, 1]], axis=1),
    }


def _split(names: tuple[str, ...]) -> tuple[npt.NDArray[np.bool_], ...]:
    """Train, validation and test masks by the rank of a checksum of the name."""
    checksums = np.array([zlib.crc32(name.encode()) for name in names])
    share = np.empty(len(names))
    share[np.argsort(checksums, kind="stable")] = np.arange(len(names)) / len(names)
    return (
        share < TRAIN,
        (share >= TRAIN) & (share < TRAIN + VAL),
        (share >= TRAIN + VAL) & (share < TRAIN + VAL + TEST),
    )


def _features(index: PackageIndex, relations: Mapping[str, Pairs]) -> Floats:
    numbers = _numbers(index, relations)
    tags = _tag_bins(index, _TAG_BINS)
    names = index.names[: index.binaries]
    return np.ascontiguousarray(
        np.hstack([numbers, tags, _name_bins(names, FEATURES - _TAG_BINS - numbers.shape[1])])
    )


def _numbers(index: PackageIndex, relations: Mapping[str, Pairs]) -> Floats:
    """Sizes, degrees, priority and the shape of the name, each with mean 0 and deviation 1."""
    nodes = index.binaries
    names = index.names[:nodes]
    built = index.relations["built-from"]
    siblings = np.zeros(index.nodes)  # packages of the same source; a few have none here
    siblings[built[:, 0]] = np.bincount(built[:, 1], minlength=index.nodes)[built[:, 1]]
    columns: list[npt.NDArray[Any]] = [
        index.any_architecture[:nodes],
        index.multi_arch[:nodes],
        np.log1p(index.size[:nodes]),
        np.log1p(index.installed_size[:nodes]),
        np.log1p(index.tag_counts[:nodes].astype(np.float64)),
        np.log1p(siblings[:nodes]),
        np.array([len(name) for name in names]),
        np.array([name.count("-") for name in names]),
        np.array([sum(map(name.count, "0123456789")) for name in names]),
    ]
    # A number for every priority but the empty one, which sources have.
    columns += [
        index.priority[:nodes] == number for number, name in enumerate(index.priority_names) if name
    ]
    for pairs in relations.values():
        for ends in pairs.T:
            columns.append(np.log1p(np.bincount(ends, minlength=nodes)))
    table = np.stack(columns, axis=1).astype(np.float64)
    deviation = table.std(axis=0)
    table = (table - table.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    scaled: Floats = table.astype(np.float32)
    return scaled


def _tag_bins(index: PackageIndex, bins: int) -> Floats:
    """Signed hashing of the tags: float32 ``[N, bins]``, rows of length 1 (or 0)."""
    codes = [zlib.crc32(tag.encode()) for tag in index.tag_names]
    counts = index.tag_counts[: index.binaries]
    hashes = np.array(codes, np.uint64)[index.tags[: counts.sum()]]
    return _signed_bins(np.repeat(np.arange(counts.size), counts), hashes, counts.size, bins)


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
    scaled: Floats = (table / np.maximum(length, 1)).astype(np.float32)
    return scaled
