"""The training support of a model: which observations resemble what it was fitted to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, model_validator

from rudder.model.estimator import Rows

QUANTILE = 0.001
"""Share of the training rows that may lie beyond a column's range, at either end."""
MARGIN = 0.1
"""Columns may exceed their range by this share of its width."""
DISTANCE_QUANTILE = 0.999
DISTANCE_MARGIN = 1.5
"""The greatest squared distance inside: this quantile over the training rows, times this."""
ROUNDING = 1e-9
"""Columns may exceed their range by this, relative to their size: one that never varied, too."""
RIDGE = 1e-3
"""Added to the variances, so that a column which never varied, or two that vary as one, tolerate
little, but not nothing."""


class Support(BaseModel):
    """Ranges of the columns, and a Mahalanobis distance for their combinations.

    Attributes:
        low, high: (columns,): a value beyond is outside.
        centre, scale: (columns,): mean and standard deviation of the training rows.
        precision: (columns, columns): of the standardised columns.
        limit: greatest squared distance that is inside.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    low: tuple[float, ...]
    high: tuple[float, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    precision: tuple[tuple[float, ...], ...]
    limit: float

    @model_validator(mode="after")
    def _square(self) -> Support:
        count = len(self.low)
        lengths = {len(values) for values in (self.high, self.centre, self.scale, self.precision)}
        if lengths != {count} or any(len(row) != count for row in self.precision):
            raise ValueError(f"support has columns of unequal number, {count} low bounds")
        return self

    @classmethod
    def of(cls, rows: Rows) -> Support:
        """The support of training rows, float64 (n, columns), n >= 1."""
        low, high = np.quantile(rows, [QUANTILE, 1 - QUANTILE], axis=0)
        centre, scale = rows.mean(axis=0), rows.std(axis=0)
        rounding = ROUNDING * np.maximum(np.abs(centre), 1.0)
        reach = np.maximum(MARGIN * (high - low), rounding)
        scale = np.where(scale > rounding, scale, 1.0)
        standard = (rows - centre) / scale
        covariance = standard.T @ standard / len(rows)
        precision = np.linalg.inv(covariance + RIDGE * np.eye(len(centre)))
        distances = np.einsum("ni,ij,nj->n", standard, precision, standard)
        return cls(
            low=tuple(low - reach),
            high=tuple(high + reach),
            centre=tuple(centre),
            scale=tuple(scale),
            precision=tuple(tuple(row) for row in precision),
            limit=float(DISTANCE_MARGIN * np.quantile(distances, DISTANCE_QUANTILE) + ROUNDING),
        )


class SupportCheck:
    """Tells rows inside the support from those outside; arrays made once, some microseconds a row.

    Args:
        support: of the model.
        names: of the columns.
    """

    def __init__(self, support: Support, names: tuple[str, ...]) -> None:
        self._names = names
        self._low, self._high = np.array(support.low), np.array(support.high)
        self._centre, self._scale = np.array(support.centre), np.array(support.scale)
        self._precision, self._limit = np.array(support.precision), support.limit

    def inside(self, row: npt.NDArray[np.float64]) -> bool:
        """Does a row (columns,) resemble the training rows?"""
        return not self.beyond(row) and self.distance(row) <= self._limit

    def beyond(self, row: npt.NDArray[np.float64]) -> list[str]:
        """Names of the columns out of their range."""
        # Written so that NaN is out of range.
        out = ~((row >= self._low) & (row <= self._high))
        return [self._names[index] for index in np.flatnonzero(out)] if out.any() else []

    def distance(self, row: npt.NDArray[np.float64]) -> float:
        """Squared distance of a row (columns,) from the centre."""
        standard: Any = (row - self._centre) / self._scale
        return float(standard @ self._precision @ standard)
