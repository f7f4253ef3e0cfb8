"""Features and labels that are derived from the structure, where a graph brings none."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import UsageError

from .seeds import FEATURES, generator

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

FEATURE_RULE = (
    "derived: standardised log(1+in-degree), log(1+out-degree), and a seeded Gaussian vector per "
    "node averaged twice over itself and its in-neighbours"
)
LABEL_RULE = "derived: rank of the in-degree in equal groups (the source has no labels)"


def neighbour_mean(src: Int64s, dst: Int64s, values: Floats) -> Floats:
    """Mean of ``values`` [N, F] over each node's in-neighbours; 0 for nodes without any."""
    from scipy.sparse import csr_matrix

    nodes = values.shape[0]
    degree = np.bincount(dst, minlength=nodes)
    weights = (1.0 / np.maximum(degree, 1))[dst].astype(np.float32)
    mean: Floats = csr_matrix((weights, (dst, src)), shape=(nodes, nodes)) @ values
    return mean


def standardise(values: npt.NDArray[Any], rows: npt.NDArray[np.bool_] | None = None) -> Floats:
    """Columns with mean 0 and deviation 1 over ``rows`` (default all); constant ones are 0."""
    sample = values if rows is None or not rows.any() else values[rows]
    mean, deviation = sample.mean(axis=0, dtype=np.float64), sample.std(axis=0, dtype=np.float64)
    scaled = (values - mean) / np.where(deviation > 0, deviation, 1.0)
    result: Floats = scaled.astype(np.float32)
    return result


def structural_features(src: Int64s, dst: Int64s, nodes: int, width: int, seed: int) -> Floats:
    """Features float32 ``[N, width]`` after :data:`FEATURE_RULE`; equal input, equal output.

    Raises:
        UsageError: a width below 1, or a negative seed.
    """
    if width < 1:
        raise UsageError(f"feature_width={width} must be a whole number of at least 1")
    degrees = np.log1p(
        np.stack(
            [np.bincount(dst, minlength=nodes), np.bincount(src, minlength=nodes)], axis=1
        ).astype(np.float32)
    )[:, :width]
    field = generator(seed, FEATURES).standard_normal((nodes, max(width - 2, 0)), dtype=np.float32)
    for _ in range(2):
        field = 0.5 * (field + neighbour_mean(src, dst, field))
    return standardise(np.concatenate([degrees, field], axis=1))


def degree_labels(dst: Int64s, nodes: int, classes: int) -> Int64s:
    """Class 0 .. ``classes``-1 by in-degree, in equal groups; equal degrees stay together."""
    degree = np.bincount(dst, minlength=nodes)
    at_most = np.cumsum(np.bincount(degree)) - 1  # rank of the last node with that degree
    labels: Int64s = (at_most[degree] * classes // max(nodes, 1)).astype(np.int64)
    return labels
