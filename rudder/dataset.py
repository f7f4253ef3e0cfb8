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
        wrong = self._wrong_features() or [
            *self._wrong_edges(), *self._wrong_rows(), *self._wrong_labels()
        ]  # fmt: skip
        if wrong:
            raise DatasetError(f"graph {self.name!r}: " + "; ".join(wrong))
        return self

    def _wrong_features(self) -> list[str]:
        if self.features.ndim != 2 or self.features.dtype != np.float32:
            shape = list(self.features.shape)
            return [f"features must be float32 [N, F], found {self.features.dtype} {shape}"]
        if 0 in self.features.shape:
            return [f"features are {list(self.features.shape)}: no nodes, or no columns"]
        finite = np.isfinite(self.features).all(axis=1)
        if not finite.all():
            bad = np.flatnonzero(~finite)
            return [f"features of {bad.size} nodes hold NaN or infinity (first: {bad[0]})"]
        return []

    def _wrong_edges(self) -> list[str]:
        n = self.nodes
        if self.src.shape != self.dst.shape or self.src.ndim != 1:
            return [f"src {self.src.shape} and dst {self.dst.shape} must be [E] alike"]
        if not self.src.dtype == self.dst.dtype == np.int64:
            return [f"src and dst must be int64, found {self.src.dtype} and {self.dst.dtype}"]
        low = min(self.src.min(initial=0), self.dst.min(initial=0))
        high = max(self.src.max(initial=0), self.dst.max(initial=0))
        if low < 0 or high >= n:
            return [f"edge ends must lie in 0..{n - 1}, found {low if low < 0 else high}"]
        return []

    def _wrong_rows(self) -> list[str]:
        found = []
        for name, dtype in (
            ("train", np.bool_), ("val", np.bool_), ("test", np.bool_), ("node_ids", np.int64),
        ):  # fmt: skip
            rows = getattr(self, name)
            if rows is None:
                continue
            if rows.dtype != dtype or rows.ndim != 1:
                shape = list(rows.shape)
                found.append(f"{name} must be {np.dtype(dtype)} [N], found {rows.dtype} {shape}")
            elif rows.size != self.nodes:
                found.append(f"{name} has {rows.size} rows for {self.nodes} nodes")
        if found:
            return found
        both = (self.train & self.val) | (self.val & self.test) | (self.train & self.test)
        if both.any():
            first = np.flatnonzero(both)[0]
            return [f"train, val and test overlap (first: node {first})"]
        return []

    def _wrong_labels(self) -> list[str]:
        labels, wanted = self.labels, "float32 [N, C]" if self.multilabel else "int64 [N]"
        dtype = np.float32 if self.multilabel else np.int64
        if labels.ndim not in (1, 2) or labels.dtype != dtype:
            return [f"labels must be {wanted}, found {labels.dtype} {list(labels.shape)}"]
        if labels.shape[0] != self.nodes:
            return [f"labels has {labels.shape[0]} rows for {self.nodes} nodes"]
        if self.multilabel:
            if labels.shape[1] != self.classes:
                return [f"labels have {labels.shape[1]} columns but {self.classes} classes"]
            return [] if ((labels == 0) | (labels == 1)).all() else ["labels must be 0 or 1"]
        if labels.max() >= self.classes:
            return [f"label {labels.max()} but {self.classes} classes"]
        return [f"label {labels.min()}: unlabelled is -1"] if labels.min() < -1 else []

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
