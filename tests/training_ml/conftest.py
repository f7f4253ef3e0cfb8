"""Examples whose answer is known, a small estimator of our own, and a model fitted with it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rudder_training_ml.fit import Fitted, Material, fit

from rudder.home import Home
from rudder.model import Examples, Training
from rudder.observation import feature_names
from rudder.plugins import load_file
from rudder.registries import ESTIMATORS
from rudder.registry import Entry
from rudder.spec import Spec
from rudder.tracking.store import Store

PLUGIN = '''
import json
from pathlib import Path

import numpy as np

from rudder.errors import ModelError
from rudder.model import Estimator
from rudder.registries import ESTIMATORS


class Stump(Estimator):
    """p = a logistic curve over one column, from the middle between the classes' means."""

    files = ("stump.json",)
    libraries = ("numpy",)

    def __init__(self, column: int = 0, steep: float = 1.0) -> None:
        self.column = column
        self.steep = steep

    def fit(self, examples, validation, seed, progress):
        progress("stump", 0.5)
        values, labels = examples.rows[:, self.column], examples.labels
        low, high = values[labels == 0].mean(), values[labels == 1].mean()
        self._middle = float((low + high) / 2)
        self._slope = float(self.steep * np.sign(high - low) / (values.std() or 1.0))
        return {"middle": self._middle}

    def predict(self, rows):
        return 1 / (1 + np.exp(-self._slope * (rows[:, self.column] - self._middle)))

    def save(self, folder):
        text = json.dumps({"middle": self._middle, "slope": self._slope})
        (folder / "stump.json").write_text(text)

    def restore(self, folder, columns):
        found = json.loads((folder / "stump.json").read_text())
        self._middle, self._slope = found["middle"], found["slope"]

    @classmethod
    def suggest(cls, trial):
        return {"column": trial.suggest_int("column", 0, 3)}


ESTIMATORS.register("stump", Stump, params={"column": 0, "steep": 1.0})
'''

MakeMaterial = Callable[..., Material]


def make_examples(
    groups: list[str], *, seed: int = 0, rows: int = 40, names: tuple[str, ...] | None = None
) -> Examples:
    """Rows per group; the label is whether ``hit_rate`` is below 0.5, with a tenth turned round."""
    names = names or feature_names()
    random = np.random.default_rng(seed)
    count = rows * len(groups)
    values = random.random((count, len(names)))
    right = values[:, names.index("hit_rate")] < 0.5
    labels = (right ^ (random.random(count) < 0.1)).astype(np.int8)
    weights = random.uniform(0.5, 1.5, count)
    return Examples(names, values, labels, weights / weights.mean(), np.repeat(groups, rows))


def make_training(**changes: Any) -> Training:
    facts: dict[str, Any] = {
        "suite": "train",
        "suite_digest": "0123456789abcdef",
        "scenarios": {"plain": "1111111111111111"},
        "graphs": ("debian",),
        "traces": ("t0", "t1"),
        "seeds": (0, 1, 2),
        "collection": "c" * 64,
        "label": "counterfactual:horizon=32,tie=0.002",
        "examples": {"train": 160, "validation": 80, "test": 80, "dropped: tie": 7},
    }
    return Training(**{**facts, **changes})


@pytest.fixture
def parts() -> dict[str, Examples]:
    """By part; groups of 40 rows."""
    return {
        "train": make_examples(["a", "b", "c", "d"], seed=1),
        "validation": make_examples(["e", "f"], seed=2),
        "test": make_examples(["g", "h"], seed=3),
    }


@pytest.fixture
def material(parts: dict[str, Examples]) -> Material:
    """What replacing gains is the weight, with the label's sign."""
    gains = {n: e.weights * np.where(e.labels == 1, 1.0, -1.0) for n, e in parts.items()}
    return Material(parts, gains, make_training())


@pytest.fixture(scope="session")
def _loaded_stump(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Entry]:
    path = tmp_path_factory.mktemp("plugin") / "stump.py"
    path.write_text(PLUGIN)
    load_file(path)
    return path, ESTIMATORS._entries.pop("stump")


@pytest.fixture
def stump(_loaded_stump: tuple[Path, Entry]) -> Iterator[Path]:
    """The plug-in file of the estimator ``stump``, which is registered for this test only."""
    path, entry = _loaded_stump
    ESTIMATORS.names()  # what is installed comes first
    before = dict(ESTIMATORS._entries)
    ESTIMATORS._entries["stump"] = entry
    yield path
    ESTIMATORS._entries.clear()
    ESTIMATORS._entries.update(before)


@pytest.fixture
def fit_stump(stump: Path, material: Material, tmp_path: Path) -> Callable[..., Fitted]:
    """Fit it below ``tmp_path/models``."""

    def run(name: str = "stump", estimator: str = "stump", **options: Any) -> Fitted:
        return fit(
            Spec.parse(estimator),
            options.pop("material", material),
            tmp_path / "models" / name,
            lambda what, share: None,
            **options,
        )

    return run


@pytest.fixture(scope="session")
def fresh_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with MLflow's tables, to copy: making them takes seconds."""
    home = Home(tmp_path_factory.mktemp("fresh"))
    with Store(home).session():
        return home.root / "mlflow.db"


@pytest.fixture
def store(home: Home, fresh_store: Path) -> Store:
    shutil.copy(fresh_store, home.root / "mlflow.db")
    return Store(home)
