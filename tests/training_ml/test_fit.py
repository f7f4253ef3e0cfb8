"""A fit: what the manifest says, that it is true, and that models are judged on other runs."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rudder_training_ml.checks import select
from rudder_training_ml.fit import SECONDS, Fitted, Material, default_columns

from rudder.errors import ModelError, TrainingDataError, UnknownNameError
from rudder.model import FittedModel, Support
from rudder.observation import FEATURES, feature_names
from rudder.registries import ESTIMATORS

FitStump = Callable[..., Fitted]
EXACT = "stump:steep=50.0"


def test_the_manifest_tells_everything(fit_stump: FitStump, material: Material) -> None:
    manifest = fit_stump("mine", seed=7).manifest
    assert manifest.name == "mine"
    assert manifest.estimator == {"name": "stump", "params": {"column": 0, "steep": 1.0}}
    assert manifest.training == material.training
    assert manifest.seed == 7
    assert manifest.threshold == 0.5
    assert manifest.names == tuple(n for n in feature_names() if n not in SECONDS)
    assert len(manifest.names) == len(FEATURES) - 2
    units = {feature.name: feature.unit for feature in FEATURES}
    assert all(column.unit == units[column.name] for column in manifest.columns)
    rows = select(material.parts["train"], manifest.names).rows
    assert manifest.support == Support.of(rows)
    assert manifest.made_with["numpy"] == importlib.metadata.version("numpy")
    assert set(manifest.made_with) == {"python", "rudder-gnn", "numpy"}
    assert set(manifest.compatible) == {"numpy"}
    assert manifest.created.endswith("+00:00")
    assert 0.4 < manifest.fitted["middle"] < 0.6
    assert manifest.fitted["constant_columns"] == []


def test_metrics_are_those_of_the_test_part(fit_stump: FitStump, material: Material) -> None:
    fitted = fit_stump("mine", EXACT)
    metrics, test = fitted.manifest.metrics, material.parts["test"]
    p = FittedModel.load(fitted.folder).predict(
        select(test, default_columns()).rows, default_columns()
    )
    answers, right = p >= 0.5, test.labels == 1
    assert metrics["accuracy"] == np.mean(answers == right)
    assert metrics["balance"] == right.mean()
    assert metrics["predicted"] == answers.mean()
    gain = material.gains["test"]
    assert metrics["captured"] == pytest.approx(gain[answers].sum() / gain[gain > 0].sum())
    # A tenth of the labels is turned round: no rule on the column is much better than 0.9.
    assert 0.8 < metrics["accuracy"] < 0.99
    assert 0.5 < metrics["captured"] < 0.95


def test_the_baselines_stand_beside(fit_stump: FitStump, material: Material) -> None:
    manifest = fit_stump("mine", EXACT).manifest
    test = material.parts["test"]
    most = material.parts["train"].labels.mean() > 0.5
    assert manifest.fitted["majority"] == ("replace" if most else "keep")
    assert manifest.metrics["majority_accuracy"] == np.mean((test.labels == 1) == most)
    assert manifest.metrics["majority_balanced_accuracy"] == 0.5
    assert manifest.metrics["majority_auc"] is None
    assert manifest.fitted["single_feature_rule"].startswith("hit_rate < 0.")
    assert manifest.metrics["single_accuracy"] == pytest.approx(
        manifest.metrics["accuracy"], abs=0.05
    )
    assert manifest.metrics["single_auc"] > 0.8
    assert manifest.metrics["single_log_loss"] is None


def test_learning_by_heart_shows(fit_stump: FitStump, material: Material) -> None:
    """Labels that only the training part has: AUC there, none on the test part."""
    train = material.parts["train"]
    noise = np.random.default_rng(5).permutation(train.labels)
    by_heart = replace(material, parts={**material.parts, "train": replace(train, labels=noise)})
    metrics = fit_stump("xgboost", "xgboost", material=by_heart).manifest.metrics
    assert metrics["train_auc"] > metrics["auc"] + 0.1


def test_without_a_test_part_nothing_is_claimed(fit_stump: FitStump, material: Material) -> None:
    fewer = Material(
        {name: material.parts[name] for name in ("train", "validation")},
        {name: material.gains[name] for name in ("train", "validation")},
        material.training,
    )
    metrics = fit_stump("mine", material=fewer).manifest.metrics
    assert metrics["accuracy"] is None
    assert metrics["single_captured"] is None
    assert metrics["validation_auc"] is not None


def test_columns_are_those_asked_for_in_their_order(
    fit_stump: FitStump, material: Material
) -> None:
    manifest = fit_stump("mine", columns=["progress", "hit_rate"]).manifest
    assert manifest.names == ("progress", "hit_rate")
    train = material.parts["train"].rows
    taken = np.stack([train[:, feature_names().index(name)] for name in manifest.names], axis=1)
    assert manifest.support == Support.of(taken)
    with pytest.raises(UnknownNameError, match="no column is named hits"):
        fit_stump("mine", columns=["hits"])


def test_a_constant_column_is_told(fit_stump: FitStump, material: Material) -> None:
    parts = dict(material.parts)
    for name, examples in parts.items():
        rows = examples.rows.copy()
        rows[:, examples.names.index("mean_degree")] = 4.25
        parts[name] = replace(examples, rows=rows)
    fitted = fit_stump("mine", material=replace(material, parts=parts))
    assert fitted.checked.constant == ("mean_degree",)
    assert fitted.manifest.fitted["constant_columns"] == ["mean_degree"]
    assert "mean_degree" not in fitted.manifest.names
    with pytest.raises(TrainingDataError, match="mean_degree: all columns are constant"):
        fit_stump("none", material=replace(material, parts=parts), columns=["mean_degree"])


def test_a_threshold_is_chosen_on_the_validation_part(
    fit_stump: FitStump, material: Material
) -> None:
    # Replacing is right most of the time, and by far when it is.
    gentle = fit_stump("given").manifest
    chosen = fit_stump("chosen", threshold=None).manifest
    assert chosen.fitted["threshold_chosen_on"] == "validation"
    assert gentle.fitted["threshold_chosen_on"] is None
    validation = select(material.parts["validation"], default_columns())
    fitted = FittedModel.load(fit_stump("again", threshold=None).folder)
    p = fitted.predict(validation.rows, validation.names)

    def cost(limit: float) -> float:
        wrong = (p >= limit) != (validation.labels == 1)
        return float(validation.weights[wrong].sum())

    assert fitted.manifest.threshold == chosen.threshold
    assert cost(chosen.threshold) == pytest.approx(min(map(cost, np.linspace(0, 1, 201))))
    assert fit_stump("fixed", threshold=0.9).manifest.threshold == 0.9


def test_a_fit_twice_is_the_same_but_for_the_clock(fit_stump: FitStump) -> None:
    one, two = fit_stump("logistic", "logistic"), fit_stump("logistic", "logistic")
    assert one.manifest.metrics == two.manifest.metrics
    assert one.manifest.support == two.manifest.support


def test_bad_examples_write_nothing(
    fit_stump: FitStump, material: Material, tmp_path: Path
) -> None:
    train = material.parts["train"].take(np.arange(3))
    few = Material(
        {**material.parts, "train": train},
        {**material.gains, "train": material.gains["train"][:3]},
        material.training,
    )
    with pytest.raises(TrainingDataError, match="3 rows"):
        fit_stump(material=few)
    assert not (tmp_path / "models").exists()


def test_gains_belong_to_examples(material: Material) -> None:
    with pytest.raises(TrainingDataError, match=r"gains are of shape \(3,\)"):
        replace(material, gains={**material.gains, "test": np.ones(3)})


@pytest.mark.parametrize("bad", [2.0, -0.1, np.nan])
def test_what_is_no_probability_is_refused(
    fit_stump: FitStump, monkeypatch: pytest.MonkeyPatch, bad: float
) -> None:
    monkeypatch.setattr(
        ESTIMATORS.target("stump"), "predict", lambda self, rows: np.full(len(rows), bad)
    )
    with pytest.raises(ModelError, match="Stump predicts what is no probability"):
        fit_stump()


def test_a_model_answers_the_same_however_its_rows_lie_in_memory(
    fit_stump: FitStump, material: Material
) -> None:
    """A DataFrame hands its columns out one after the other, an array its rows."""
    model = FittedModel.load(fit_stump("logistic", "logistic").folder)
    rows = select(material.parts["test"], default_columns()).rows
    answers = model.predict(np.ascontiguousarray(rows), default_columns())
    assert np.array_equal(model.predict(np.asfortranarray(rows), default_columns()), answers)
