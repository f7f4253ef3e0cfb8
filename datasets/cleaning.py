"""Cleaning of edges and labels: explicit, and every change counted.

The counts end in :attr:`rudder.dataset.Graph.cleaning`, under the names given here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import DatasetError

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class EdgeRules:
    """What cleaning does to edges.

    Attributes:
        drop_self_loops: remove edges from a node to itself.
        drop_duplicates: keep one of several edges with the same ends in the same direction.
        add_reverse: add the reverse of every edge that lacks it (an undirected graph).
    """

    drop_self_loops: bool = True
    drop_duplicates: bool = True
    add_reverse: bool = True


def clean_edges(
    src: npt.NDArray[Any], dst: npt.NDArray[Any], nodes: int, rules: EdgeRules, where: str
) -> tuple[Int64s, Int64s, dict[str, int]]:
    """Apply ``rules``; isolated nodes are kept and counted.

    Args:
        src, dst: integer ``[E]``.
        nodes: number of nodes N.
        where: what to name in an error, usually the file.

    Returns:
        src and dst (int64, sorted by source then destination if duplicates are dropped, else in
        the given order with added edges last), and the counts ``edges_read``,
        ``self_loops_removed``, ``duplicates_removed``, ``reverse_edges_added``, ``isolated_nodes``.

    Raises:
        DatasetError: an edge end outside 0..N-1.
    """
    _check_ends(src, dst, nodes, where)
    counts = {"edges_read": int(src.size)}
    src, dst = src.astype(np.int64, copy=False), dst.astype(np.int64, copy=False)
    if rules.drop_self_loops:
        kept = src != dst
        counts["self_loops_removed"] = int(kept.size - np.count_nonzero(kept))
        if counts["self_loops_removed"]:
            src, dst = src[kept], dst[kept]
    if rules.drop_duplicates or rules.add_reverse:
        once = _pattern(src, dst, nodes)
        back = once.T.tocsr()
        if rules.drop_duplicates:
            counts["duplicates_removed"] = int(src.size - once.nnz)
            kept_edges = once + back if rules.add_reverse else once
            src, dst = _ends(kept_edges)
            added = kept_edges.nnz - once.nnz
        else:
            more_src, more_dst = _ends(back - back.multiply(once))
            src, dst, added = np.append(src, more_src), np.append(dst, more_dst), more_src.size
        if rules.add_reverse:
            counts["reverse_edges_added"] = int(added)
    touched = np.zeros(nodes, dtype=np.bool_)
    touched[src] = touched[dst] = True
    counts["isolated_nodes"] = int(nodes - np.count_nonzero(touched))
    return src, dst, counts


@dataclass(frozen=True)
class Labels:
    """Clean labels.

    Attributes:
        values: int64 ``[N]`` with -1 for unlabelled, or float32 ``[N, C]`` of 0 and 1.
        labelled: bool ``[N]``.
        classes: number of classes C.
        counts: ``nan_labels`` (NaN in the source) and ``unlabelled`` (nodes, NaN ones included).
    """

    values: npt.NDArray[Any]
    labelled: Bools
    classes: int
    counts: Mapping[str, int]


def clean_labels(raw: npt.NDArray[Any], where: str, classes: int | None = None) -> Labels:
    """Read labels of any numeric type; NaN means unlabelled and is never cast to a number.

    Args:
        raw: ``[N]`` or ``[N, 1]`` class numbers (NaN or negative: unlabelled), or ``[N, C]`` of 0,
            1 and NaN (a row with a NaN is an unlabelled node: all 0, and in no split).
        where: what to name in an error.
        classes: number of classes where it is known, else the largest label + 1.

    Raises:
        DatasetError: labels that are no numbers, no whole numbers, or not below ``classes``.
    """
    if raw.dtype.kind not in "biuf" or raw.ndim not in (1, 2):
        raise DatasetError(
            f"{where}: labels must be numbers of shape [N] or [N, C], found {raw.dtype} "
            f"{list(raw.shape)}"
        )
    if raw.ndim == 2 and raw.shape[1] == 1:
        raw = raw[:, 0]
    nan = np.isnan(raw) if raw.dtype.kind == "f" else np.zeros(raw.shape, dtype=np.bool_)
    if raw.ndim == 2:
        labelled = ~nan.any(axis=1)
        if not np.isin(raw[labelled], (0, 1)).all():
            raise DatasetError(f"{where}: multi-label rows must hold only 0 and 1 (or NaN)")
        multi = np.where(labelled[:, None], raw, 0).astype(np.float32)
        return Labels(multi, labelled, raw.shape[1], _label_counts(~labelled, labelled))
    filled = np.where(nan, -1, raw)
    with np.errstate(invalid="ignore"):  # what does not fit differs below and is refused
        values = filled.astype(np.int64)
    broken = np.flatnonzero(values != filled)
    if broken.size:
        raise DatasetError(
            f"{where}: {broken.size} labels are no whole numbers (first: {raw[broken[0]]} of node "
            f"{broken[0]})"
        )
    values[values < 0] = -1
    top = int(values.max(initial=-1)) + 1
    if classes is not None and top > classes:
        raise DatasetError(f"{where}: label {top - 1} found, but only {classes} classes")
    labelled = values >= 0
    return Labels(values, labelled, classes or max(top, 1), _label_counts(nan, labelled))


def _label_counts(nan: Bools, labelled: Bools) -> dict[str, int]:
    return {
        "nan_labels": int(np.count_nonzero(nan)),
        "unlabelled": int(labelled.size - np.count_nonzero(labelled)),
    }


def _pattern(src: Int64s, dst: Int64s, nodes: int) -> Any:
    """A sparse 1 per distinct edge: a counting sort, several times faster than sorting keys."""
    from scipy.sparse import coo_matrix

    pattern = coo_matrix((np.ones(src.size, np.int8), (src, dst)), shape=(nodes, nodes)).tocsr()
    pattern.sum_duplicates()
    pattern.data[:] = 1
    return pattern


def _ends(pattern: Any) -> tuple[Int64s, Int64s]:
    """Sources and destinations of the nonzero entries, sorted by source, then destination."""
    pattern.eliminate_zeros()
    pattern.sort_indices()
    src = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    return src, pattern.indices.astype(np.int64)


def _check_ends(src: npt.NDArray[Any], dst: npt.NDArray[Any], nodes: int, where: str) -> None:
    if src.shape != dst.shape or src.ndim != 1:
        raise DatasetError(f"{where}: {src.shape} sources for {dst.shape} destinations")
    for side, ends in (("source", src), ("destination", dst)):
        if ends.dtype.kind not in "iu":
            raise DatasetError(f"{where}: edge ends must be whole numbers, found {ends.dtype}")
        outside = np.flatnonzero((ends < 0) | (ends >= nodes))
        if outside.size:
            raise DatasetError(
                f"{where}: {outside.size} edges have a {side} outside 0..{nodes - 1} "
                f"(first: edge {outside[0]}, node {ends[outside[0]]})"
            )
