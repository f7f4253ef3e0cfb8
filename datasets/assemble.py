"""From raw arrays to a clean, validated graph: the last step of every loader."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.dataset import Graph
from rudder.errors import DatasetError

from .cleaning import EdgeRules, Labels, clean_edges, clean_labels
from .features import (
    FEATURE_RULE,
    LABEL_RULE,
    Floats,
    Int64s,
    degree_labels,
    structural_features,
)
from .splits import Splits, random_splits

_log = logging.getLogger(__name__)


def assemble(
    name: str,
    src: npt.NDArray[Any],
    dst: npt.NDArray[Any],
    nodes: int,
    *,
    where: str,
    rules: EdgeRules,
    features: npt.NDArray[Any] | None,
    labels: npt.NDArray[Any] | None,
    splits: Splits | None,
    classes: int | None = None,
    train: float = 0.6,
    val: float = 0.2,
    seed: int = 0,
    feature_width: int = 64,
    degree_classes: int = 8,
    meta: Mapping[str, Any] | None = None,
    node_ids: Int64s | None = None,
) -> Graph:
    """Clean, fill in what is missing by a stated rule, and validate.

    Args:
        nodes: number of nodes N.
        where: what to name in errors, usually the file or folder.
        features: numbers ``[N, F]``; None: derived (:data:`FEATURE_RULE`, ``feature_width``).
        labels: as :func:`clean_labels`; None: derived (:data:`LABEL_RULE`, ``degree_classes``).
        splits: None: ``train`` and ``val`` are shares of the labelled nodes, drawn by ``seed``.
            Unlabelled nodes are taken out of given splits, and counted.

    Raises:
        DatasetError: with every inconsistency found.
    """
    if nodes < 1:
        raise DatasetError(f"{where}: the graph has no nodes")
    about = dict(meta or {})
    src, dst, counts = clean_edges(src, dst, nodes, rules, where)
    if features is None:
        about["features"] = FEATURE_RULE
        values = structural_features(src, dst, nodes, feature_width, seed)
    else:
        values = as_features(features, where)
        if values.shape[0] != nodes:
            raise DatasetError(f"{where}: {values.shape[0]} rows of features for {nodes} nodes")
    if labels is None:
        about["labels"] = LABEL_RULE
        _log.warning("%s has no labels: they are made of the in-degree", where)
        derived = degree_labels(dst, nodes, degree_classes)
        clean = Labels(derived, np.ones(nodes, dtype=np.bool_), degree_classes, {})
    else:
        clean = clean_labels(labels, where, classes)
        if clean.labelled.size != nodes:
            raise DatasetError(f"{where}: {clean.labelled.size} labels for {nodes} nodes")
    counts.update(clean.counts)
    if splits is None:
        about["splits"] = f"random, {train:g} / {val:g} of the labelled nodes, seed {seed}"
        chosen = random_splits(clean.labelled, train, val, seed)
    else:
        chosen = splits.only(clean.labelled)
        counts["unlabelled_taken_out_of_splits"] = splits.size - chosen.size
    if node_ids is not None:
        counts["ids_remapped"] = nodes
    return Graph(
        name, src, dst, values, clean.values, *chosen, clean.classes, counts, about, node_ids
    ).validated()


def as_features(raw: npt.NDArray[Any], where: str) -> Floats:
    """Numbers ``[N, F]`` (or ``[N]``, one column) as float32.

    Raises:
        DatasetError: no numbers, or another shape.
    """
    if raw.dtype.kind not in "biuf" or raw.ndim not in (1, 2):
        raise DatasetError(
            f"{where}: features must be numbers of shape [N, F], found {raw.dtype} "
            f"{list(raw.shape)}"
        )
    with np.errstate(over="ignore"):  # a value beyond float32 becomes infinite and is refused
        return np.ascontiguousarray(raw.reshape(raw.shape[0], -1), dtype=np.float32)
