"""A model of three columns whose answers are known, and its directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rudder.errors import ModelError
from rudder.model import Column, Estimator, ModelManifest, Support, Training, sha256
from rudder.observation import FEATURES, SCHEMA_VERSION
from rudder.registries import ESTIMATORS

COLUMNS = ("hit_rate", "stale_share", "progress")
WEIGHTS = "line.json"
READ: list[Path] = []
"""Folders whose weights were read: refusals have to come before."""


class Line(Estimator):
    """p(replace) = slope times the first column."""

    files: ClassVar[tuple[str, ...]] = (WEIGHTS,)

    def __init__(self, slope: float = 1.0) -> None:
        if slope < 0:
            raise ValueError("slope must not be negative")
        self.slope = slope

    def fit(self, *_: Any) -> dict[str, Any]:
        raise AssertionError("not fitted here")

    def predict(self, rows: Any) -> Any:
        return np.clip(self.slope * rows[:, 0], 0, 1)

    def save(self, folder: Path) -> None:
        (folder / WEIGHTS).write_text(json.dumps(self.slope))

    def restore(self, folder: Path, columns: int) -> None:
        READ.append(folder)
        if columns != len(COLUMNS):
            raise ModelError(f"{folder / WEIGHTS}: columns")
        self.slope = json.loads((folder / WEIGHTS).read_text())


ESTIMATORS.register("line-of-tests", Line, params={"slope": 1.0})

MakeModel = Callable[..., Path]


def training_rows(count: int = 500) -> Any:
    """Rows of :data:`COLUMNS`: the second goes with the first, the third never varies."""
    random = np.random.default_rng(1)
    first = random.uniform(0.2, 0.8, count)
    second = 0.5 * first + random.normal(0, 0.01, count)
    return np.stack([first, second, np.full(count, 0.3)], axis=1)


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Writes a model; fields of the manifest can be given."""

    def make(folder: Path | str = "line", **fields: Any) -> Path:
        folder = tmp_path / folder
        folder.mkdir(parents=True)
        Line(0.5).save(folder)
        units = {feature.name: feature.unit for feature in FEATURES}
        given = {
            "name": folder.name,
            "estimator": {"name": "line-of-tests", "params": {"slope": 1.0}},
            "observation_schema": SCHEMA_VERSION,
            "columns": tuple(Column(name=name, unit=units[name]) for name in COLUMNS),
            "files": {WEIGHTS: sha256(folder / WEIGHTS)},
            "support": Support.of(training_rows()),
            "training": Training(
                suite="train", suite_digest="d", scenarios={"uniform": "e"}, graphs=("debian",),
                traces=("t",), seeds=(0, 1), collection="c", label="paper",
                examples={"train": 500},
            ),
            **fields,
        }  # fmt: skip
        ModelManifest(**given).write(folder)
        return folder

    READ.clear()
    return make
