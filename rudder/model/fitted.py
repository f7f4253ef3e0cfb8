"""A fitted model: an estimator behind the checks that keep columns and meaning in place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import ModelError, SpecError
from rudder.model.estimator import Estimator, Rows
from rudder.model.manifest import ModelManifest
from rudder.model.support import SupportCheck
from rudder.observation import FEATURES, Observation
from rudder.registries import ESTIMATORS


class FittedModel:
    """What a classifier controller asks.

    Attributes:
        manifest: of the model.
        estimator: restored.
    """

    def __init__(self, manifest: ModelManifest, estimator: Estimator) -> None:
        self.manifest = manifest
        self.estimator = estimator
        self.support = SupportCheck(manifest.support, manifest.names)
        values = {feature.name: feature.value for feature in FEATURES}
        self._values = [values[name] for name in manifest.names]

    @classmethod
    def load(cls, folder: Path) -> FittedModel:
        """Check a model's directory, then read its weights.

        Raises:
            ModelError: see :meth:`ModelManifest.read`; or weights that do not fit the manifest.
            UnknownNameError: nobody registers its estimator.
        """
        manifest = ModelManifest.read(folder)
        try:
            estimator: Estimator = ESTIMATORS.build(manifest.spec)
        except SpecError as error:
            raise ModelError(
                f"{folder} was fitted by an estimator that is not the one of that name here: "
                f"{error}; fit the model anew"
            ) from error
        if set(estimator.files) != set(manifest.files):
            raise ModelError(
                f"{folder}: {manifest.spec.name} keeps its weights in "
                f"{', '.join(estimator.files)}, the manifest lists {', '.join(manifest.files)}"
            )
        estimator.restore(folder, len(manifest.columns))
        return cls(manifest, estimator)

    def vector(self, observation: Observation) -> npt.NDArray[np.float64]:
        """The model's columns of an observation, float64 (columns,)."""
        return np.array([value(observation) for value in self._values], np.float64)

    def predict(self, rows: npt.ArrayLike, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """p(replace), float64 (n,), of rows (n, columns) whose columns are named.

        Raises:
            ModelError: names that are missing, unknown or in another order than the model's; rows
                of another shape, or with NaN or infinity.
        """
        self._check_names(names)
        try:
            # One memory layout: a product of matrices differs in its last digits between two.
            numbers = np.ascontiguousarray(rows, np.float64)
        except (TypeError, ValueError) as error:
            raise ModelError(
                f"model {self.manifest.name!r} takes rows of numbers, all of one length: {error}"
            ) from error
        return self.estimator.predict(self._checked(numbers))

    def p_replace(self, vector: npt.NDArray[np.float64]) -> float:
        """p(replace) of one :meth:`vector`.

        Raises:
            ModelError: NaN or infinity in it.
        """
        return float(self.estimator.predict(self._checked(vector[None, :]))[0])

    def _check_names(self, names: Sequence[str]) -> None:
        wanted, given = self.manifest.names, tuple(names)
        if given == wanted:
            return
        missing = [name for name in wanted if name not in given]
        extra = [name for name in given if name not in wanted]
        told = [
            *([f"missing: {', '.join(missing)}"] if missing else []),
            *([f"not the model's: {', '.join(extra)}"] if extra else []),
        ] or ["in another order, or repeated"]
        raise ModelError(
            f"model {self.manifest.name!r} takes the columns {', '.join(wanted)}; given are "
            f"{', '.join(given)} ({'; '.join(told)})"
        )

    def _checked(self, rows: Rows) -> Rows:
        if rows.ndim != 2 or rows.shape[1] != len(self.manifest.columns):
            raise ModelError(
                f"model {self.manifest.name!r} takes rows of {len(self.manifest.columns)} columns, "
                f"found shape {rows.shape}"
            )
        finite: Any = np.isfinite(rows)
        if not finite.all():
            wrong = [self.manifest.names[at] for at in np.flatnonzero(~finite.all(axis=0))]
            raise ModelError(f"model {self.manifest.name!r}: NaN or infinity in {', '.join(wrong)}")
        return rows
