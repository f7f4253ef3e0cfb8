"""``FittedModel``: named columns only, finite numbers only, and the estimator that made it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rudder.conformance.situations import episode
from rudder.errors import ModelError, UnknownNameError
from rudder.model import FittedModel
from rudder.observation import feature_names, feature_vector

from .conftest import COLUMNS, READ, WEIGHTS, MakeModel, training_rows


@pytest.fixture
def model(make_model: MakeModel) -> FittedModel:
    return FittedModel.load(make_model())


def test_rows_of_named_columns(model: FittedModel) -> None:
    rows = training_rows(5)
    expected = 0.5 * rows[:, 0]  # the slope that was saved, not the default
    assert (model.predict(rows, COLUMNS) == expected).all()
    assert (model.predict(rows.tolist(), list(COLUMNS)) == expected).all()
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    assert (model.predict(frame, list(frame.columns)) == expected).all()
    assert model.predict(np.empty((0, 3)), COLUMNS).shape == (0,)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("stale_share", "hit_rate", "progress"), "in another order"),
        (("hit_rate", "hit_rate", "progress"), "missing: stale_share"),
        ((*COLUMNS, "progress"), "or repeated"),
        (("hit_rate", "stale_share"), "missing: progress"),
        ((*COLUMNS, "occupancy"), "not the model's: occupancy"),
        (("hit_rate", "stale_share", "done"), "missing: progress; not the model's: done"),
        ((), "missing: hit_rate, stale_share, progress"),
    ],
)
def test_other_names(model: FittedModel, names: Sequence[str], told: str) -> None:
    """Plain arrays too: the names are asked for, whatever the shape."""
    for rows in (np.zeros((2, len(names))), np.zeros((2, 3))):
        with pytest.raises(ModelError, match="takes the columns hit_rate, stale_share") as caught:
            model.predict(rows, names)
        assert told in str(caught.value)


@pytest.mark.parametrize("shape", [(3,), (2, 2), (2, 4), (1, 2, 3), ()])
def test_other_shapes(model: FittedModel, shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="rows of 3 columns"):
        model.predict(np.zeros(shape), COLUMNS)


@pytest.mark.parametrize("rows", [[[1, 2, 3], [1, 2]], [["a", "b", "c"]], [[None, {}, 1]]])
def test_no_numbers(model: FittedModel, rows: Any) -> None:
    with pytest.raises(ModelError, match="line"):
        model.predict(rows, COLUMNS)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none(model: FittedModel, value: float) -> None:
    rows = training_rows(4)
    rows[1, 1] = rows[3, 2] = value
    with pytest.raises(ModelError, match="NaN or infinity in stale_share, progress"):
        model.predict(rows, COLUMNS)
    with pytest.raises(ModelError, match="NaN or infinity in stale_share"):
        model.p_replace(rows[1])


def test_an_observation(model: FittedModel) -> None:
    """Its vector holds the model's columns of the one feature vector, bit for bit."""
    for observation in episode():
        whole = dict(zip(feature_names(), feature_vector(observation), strict=True))
        vector = model.vector(observation)
        assert vector.tolist() == [whole[name] for name in COLUMNS]
        assert model.p_replace(vector) == 0.5 * observation.window.hit_rate
        assert isinstance(model.p_replace(vector), float)


def test_the_support_comes_along(model: FittedModel) -> None:
    assert model.support.inside(np.array([0.5, 0.25, 0.3]))
    assert model.support.beyond(np.array([0.5, 0.25, 0.9])) == ["progress"]


def test_files_of_another_estimator(make_model: MakeModel, tmp_path: Path) -> None:
    folder = make_model()
    (folder / "other.json").write_text("1")
    (folder / WEIGHTS).unlink()
    (folder / "model.json").unlink()
    from rudder.model import ModelManifest, sha256

    base = ModelManifest.read(make_model("base"))
    base.model_copy(update={"files": {"other.json": sha256(folder / "other.json")}}).write(folder)
    with pytest.raises(ModelError, match=r"keeps its weights in line\.json"):
        FittedModel.load(folder)
    assert READ == []


def test_an_estimator_that_nobody_registers(make_model: MakeModel) -> None:
    with pytest.raises(UnknownNameError, match="line-of-testz"):
        FittedModel.load(make_model(estimator={"name": "line-of-testz"}))


@pytest.mark.parametrize("params", [{"slope": -1.0}, {"slope": "steep"}, {"curve": 1}])
def test_an_estimator_that_is_another_by_now(make_model: MakeModel, params: dict[str, Any]) -> None:
    folder = make_model(estimator={"name": "line-of-tests", "params": params})
    with pytest.raises(ModelError, match=str(folder)):
        FittedModel.load(folder)
