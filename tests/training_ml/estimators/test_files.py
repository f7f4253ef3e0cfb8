"""Weights that are sound as files but not what a model is made of."""

from __future__ import annotations

import importlib
import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from rudder.errors import ModelError
from rudder.model import Estimator, Examples
from rudder.registries import ESTIMATORS

from .conftest import make_examples

archive = importlib.import_module("rudder_training_ml.estimators.archive")
COLUMNS = 6


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Fits an estimator, lets the test spoil it, and saves it."""

    def fit(spec: str, spoil: Callable[[Any], None] = lambda estimator: None) -> Path:
        estimator: Estimator = ESTIMATORS.build(spec)
        parts: list[Examples] = [make_examples(200, seed) for seed in (1, 2)]
        estimator.fit(*parts, 0, lambda text, share: None)
        spoil(estimator)
        estimator.save(tmp_path)
        return tmp_path / estimator.files[0]

    return fit


def refused(spec: str, path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        ESTIMATORS.build(spec).restore(path.parent, COLUMNS)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (operator.methodcaller("clear"), "methodcaller"),
        (np.random.RandomState(0), "RandomState"),
        (np.mean, "numpy.mean"),
        ([1, {"deep": (np.random.default_rng(0),)}], "Generator"),
        (np.float32(1), "float32"),
        ({1, 2}, "set"),
    ],
)
def test_archives_of_what_no_model_is_made_of(tmp_path: Path, value: Any, named: str) -> None:
    """skops itself trusts some of these."""
    path = tmp_path / "logistic.skops"
    archive.save({"scaler": value}, path)
    assert named in refused("logistic", path)


def test_archives_without_a_models_parts(tmp_path: Path) -> None:
    path = tmp_path / "logistic.skops"
    archive.save({"scaler": 1}, path)
    assert "should hold a StandardScaler as 'scaler', found int" in refused("logistic", path)
    archive.save([1, 2], path)
    assert "holds a list" in refused("logistic", path)


def test_archives_that_unpack_to_too_much(
    save: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save("logistic")
    monkeypatch.setattr(archive, "_MOST_BYTES", 1000)
    assert "would unpack to" in refused("logistic", path)


def _no_number(estimator: Any) -> None:
    estimator._model.coef_[0, 1] = np.nan


def _no_spread(estimator: Any) -> None:
    estimator._scaler.scale_[2] = 0.0


def _another_shape(estimator: Any) -> None:
    estimator._model.coef_ = estimator._model.coef_[:, :3]


def _unfitted(estimator: Any) -> None:
    del estimator._model.intercept_


@pytest.mark.parametrize("spec", ["logistic", "svm:kernel=linear"])
@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (_no_number, "coef_"),
        (_no_spread, "scale_"),
        (_another_shape, "coef_"),
        (_unfitted, "intercept_"),
    ],
)
def test_arrays_that_do_not_fit(
    save: Callable[..., Path], spec: str, spoil: Callable[[Any], None], named: str
) -> None:
    assert named in refused(spec, save(spec, spoil))


def _other_kernel(estimator: Any) -> None:
    estimator._model.kernel = "poly"


def _fewer_vectors(estimator: Any) -> None:
    estimator._model.support_vectors_ = estimator._model.support_vectors_[:-1]


@pytest.mark.parametrize(
    ("spoil", "named"), [(_other_kernel, "radial"), (_fewer_vectors, "support_vectors_")]
)
def test_a_machine_that_is_another(
    save: Callable[..., Path], spoil: Callable[[Any], None], named: str
) -> None:
    assert named in refused("svm", save("svm", spoil))


def _loop(estimator: Any) -> None:
    tree = estimator._model.estimators_[3].tree_
    tree.children_right[0] = 0


def _beyond(estimator: Any) -> None:
    tree = estimator._model.estimators_[3].tree_
    tree.children_left[0] = tree.node_count


def _unknown_column(estimator: Any) -> None:
    estimator._model.estimators_[3].tree_.feature[0] = COLUMNS


@pytest.mark.parametrize("spoil", [_loop, _beyond, _unknown_column])
def test_trees_that_lead_nowhere(save: Callable[..., Path], spoil: Callable[[Any], None]) -> None:
    assert "lead nowhere" in refused("forest", save("forest", spoil))


def test_boosted_trees_for_something_else(save: Callable[..., Path]) -> None:
    path = save("xgboost:rounds=3")
    content = path.read_text()
    model = json.loads(content)
    model["learner"]["objective"] = {"name": "reg:squarederror", "reg_loss_param": {}}
    path.write_text(json.dumps(model))
    assert "reg:squarederror" in refused("xgboost", path)
    for text in ("{}", "[]", '{"learner": 1}', content.replace("gbtree", "gbtrea")):
        path.write_text(text)
        assert "xgboost can read" in refused("xgboost", path)


@pytest.mark.parametrize("spec", ["mlp:epochs=1", "tabnet:epochs=1"])
@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda tensors: tensors.update(more=np.zeros(2)), "more"),
        (lambda tensors: tensors.pop("mean"), "mean"),
        (lambda tensors: tensors.update(mean=tensors["mean"][:3]), "mean should be"),
        (lambda tensors: tensors.update(mean=tensors["mean"].astype(np.float32)), "float32"),
        (lambda tensors: tensors["mean"].fill(np.nan), "infinity in mean"),
        (lambda tensors: tensors["scale"].fill(0.0), "scale is not above 0"),
    ],
)
def test_tensors_that_do_not_fit(
    save: Callable[..., Path], spec: str, spoil: Callable[[dict[str, Any]], None], named: str
) -> None:
    path = save(spec)
    with safe_open(path, "np") as file:
        facts = file.metadata()
        tensors = {name: file.get_tensor(name).copy() for name in file.keys()}  # noqa: SIM118
    spoil(tensors)
    save_file(tensors, path, facts)
    assert named in refused(spec, path)
    save_file(tensors, path)  # without what the weights are of
    assert "holds weights of None" in refused(spec, path)
