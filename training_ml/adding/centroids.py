"""An estimator of one's own, in one file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import ModelError
from rudder.model.estimator import Estimator, Examples, Rows, Told
from rudder.registries import ESTIMATORS


class Centroids(Estimator):
    """Nearer to the mean observation of *replace*, or to that of *keep*?"""

    files = ("means.json",)

    def fit(
        self, examples: Examples, validation: Examples, seed: int, progress: Told
    ) -> dict[str, Any]:
        self.scale = examples.rows.std(axis=0) + 1e-9
        means = [examples.rows[examples.labels == label].mean(axis=0) for label in (0, 1)]
        self.means = np.stack(means)
        return {}

    def predict(self, rows: Rows) -> npt.NDArray[np.float64]:
        keep, replace = (np.linalg.norm((rows - m) / self.scale, axis=1) for m in self.means)
        return np.asarray((keep + 1e-9) / (keep + replace + 2e-9), np.float64)

    def save(self, folder: Path) -> None:
        told = {"scale": self.scale.tolist(), "means": self.means.tolist()}
        (folder / "means.json").write_text(json.dumps(told))

    def restore(self, folder: Path, columns: int) -> None:
        told = json.loads((folder / "means.json").read_text())
        self.scale, self.means = np.array(told["scale"]), np.array(told["means"])
        if self.means.shape != (2, columns):
            raise ModelError(f"{folder}/means.json holds means of shape {self.means.shape}")


ESTIMATORS.register("centroids", Centroids, summary="nearest of two means")
