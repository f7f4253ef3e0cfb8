"""The contract of a dataset: one graph with features, labels and splits, as plain arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import DatasetError


@dataclass(frozen=True)
class Graph:
    """A homogeneous directed graph for node classification.

    Attributes:
        name: short name, used for files; a dataset spec with its parameters is in ``source``.
        src, dst: int64 ``[E]``; edge ``e`` carries messages from ``src[e]`` to ``dst[e]``.
        features: float32 ``[N, F]``.
        labels: int64 ``[N]``, -1 = unlabelled; or float32 ``[N, C]`` of 0 and 1 (multi-label).
        train, val, test: bool ``[N]`` masks, disjoint.
        classes: number of classes C.
        cleaning: what cleaning did, counted (self-loops, duplicates, …).
        meta: source, licence and what else is worth showing.
        node_ids: int64 ``[N]``: the id of each node in the files it was read from, where those ids
            are not 0..N-1; else None.
    """

    name: str
    src: npt.NDArray[np.int64]
    dst: npt.NDArray[np.int64]
    features: npt.NDArray[np.float32]
    labels: npt.NDArray[Any]
    train: npt.NDArray[np.bool_]
    val: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]
    classes: int
    cleaning: Mapping[str, int] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    node_ids: npt.NDArray[np.int64] | None = None

    @property
    def nodes(self) -> int:
        return int(self.features.shape[0])

    @property
    def edges(self) -> int:
        return int(self.src.shape[0])

    @property
    def multilabel(self) -> bool:
        return self.labels.ndim == 2

    def validated(self) -> Graph:
        """Itself.

        Raises:
            DatasetError: with every inconsistency found.
        """
        n, found = self.nodes, []
        if self.src.shape != self.dst.shape or self.src.ndim != 1:
            found.append(f"src {self.src.shape} and dst {self.dst.shape} must be [E] alike")
        elif self.edges and not (
            min(self.src.min(), self.dst.min()) >= 0 and max(self.src.max(), self.dst.max()) < n
        ):
            found.append(f"edge ends must lie in 0..{n - 1}")
        if self.features.ndim != 2 or self.features.dtype != np.float32:
            found.append(f"features must be float32 [N, F], found {self.features.dtype}")
        elif not np.isfinite(self.features).all():
            bad = np.flatnonzero(~np.isfinite(self.features).all(axis=1))
            found.append(f"features of {bad.size} nodes hold NaN or infinity (first: {bad[0]})")
        for name in ("labels", "train", "val", "test", "node_ids"):
            rows = getattr(self, name)
            if rows is not None and rows.shape[0] != n:
                found.append(f"{name} has {rows.shape[0]} rows for {n} nodes")
        if (
            not found
            and ((self.train & self.val) | (self.val & self.test) | (self.train & self.test)).any()
        ):
            found.append("train, val and test overlap")
        if not self.multilabel and self.labels.size and self.labels.max() >= self.classes:
            found.append(f"label {self.labels.max()} but {self.classes} classes")
        if found:
            raise DatasetError(f"graph {self.name!r}: " + "; ".join(found))
        return self

    def digest(self) -> str:
        """SHA-256 over every array, 16 hex digits: equal graphs, equal digest."""
        sha = hashlib.sha256()
        arrays: list[npt.NDArray[Any]] = [
            self.src, self.dst, self.features, self.labels, self.train, self.val, self.test
        ]  # fmt: skip
        if self.node_ids is not None:
            arrays.append(self.node_ids)
        for array in arrays:
            sha.update(f"{array.dtype}{array.shape}".encode())
            sha.update(np.ascontiguousarray(array).data)
        return sha.hexdigest()[:16]
