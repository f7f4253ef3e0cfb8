"""A linear function of standardised columns, as NumPy arrays.

scikit-learn's own call checks its input at length, which costs a single row several times what the
product does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rudder.errors import ModelError
from rudder.model import Rows

from .weighing import Values


@dataclass(frozen=True)
class Standard:
    """Mean and scale of the columns, float64 (columns,) each; a constant column has scale 1."""

    mean: Values
    scale: Values

    @classmethod
    def of(cls, path: Path, scaler: Any) -> Standard:
        """The arrays of a fitted ``StandardScaler``.

        Raises:
            ModelError: they are not what the model of this path can have.
        """
        columns = scaler.n_features_in_
        mean = array(path, scaler, "mean_", (columns,))
        scale = array(path, scaler, "scale_", (columns,))
        if not (scale > 0).all():
            raise ModelError(f"{path}: scale_ of its scaler is not above 0; fit the model anew")
        return cls(mean, scale)

    def __call__(self, rows: Rows) -> Rows:
        """Standardised rows, float64 (n, columns)."""
        result: Rows = (rows - self.mean) / self.scale
        return result


@dataclass(frozen=True)
class Linear:
    """``standard(row) @ coefficients + intercept``."""

    standard: Standard
    coefficients: Values
    intercept: float

    @classmethod
    def of(cls, path: Path, scaler: Any, model: Any) -> Linear:
        """The arrays of a fitted scaler and a linear model of scikit-learn.

        Raises:
            ModelError: they are not what the model of this path can have.
        """
        columns = scaler.n_features_in_
        return cls(
            Standard.of(path, scaler),
            array(path, model, "coef_", (1, columns))[0],
            float(array(path, model, "intercept_", (1,))[0]),
        )

    def __call__(self, rows: Rows) -> Values:
        """Float64 (n,) of rows (n, columns)."""
        result: Values = self.standard(rows) @ self.coefficients + self.intercept
        return result


def array(path: Path, model: Any, name: str, shape: tuple[int, ...]) -> Values:
    """An array of a fitted model, float64.

    Args:
        shape: that it must have.

    Raises:
        ModelError: missing, of another shape, or not finite.
    """
    try:
        found = np.asarray(getattr(model, name), np.float64)
    except (AttributeError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path}: {type(model).__name__} has no usable {name} ({error}); fit the model anew"
        ) from error
    if found.shape != shape or not np.isfinite(found).all():
        raise ModelError(
            f"{path}: {name} of {type(model).__name__} should be finite numbers of shape {shape}, "
            f"found shape {found.shape}; fit the model anew"
        )
    return found
