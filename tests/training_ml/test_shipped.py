"""The six classifiers that ship: whole, small, each its own, and made by one command."""

from __future__ import annotations

import pytest

from rudder.engine import RunOptions
from rudder.errors import MissingPathError
from rudder.home import Home
from rudder.model import FittedModel, find_model
from rudder.registries import CONTROLLERS, ESTIMATORS, MODELS
from rudder.replay.engine import ReplayEngine
from rudder.running import run_tracked
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.suite import find_suite
from rudder.trace import Trace
from rudder.trace.find import find_trace

NAMES = ("forest", "logistic", "mlp", "svm", "tabnet", "xgboost")


def test_every_estimator_has_a_shipped_model_and_a_controller() -> None:
    own = [e.name for e in ESTIMATORS if e.target.startswith("rudder_training_ml.")]
    assert own == MODELS.names() == list(NAMES)
    assert set(NAMES) <= set(CONTROLLERS.names())


def test_together_they_are_small() -> None:
    folders = [find_model(name) for name in NAMES]
    size = sum(path.stat().st_size for folder in folders for path in folder.rglob("*"))
    assert size < 5_000_000


@pytest.mark.parametrize("name", NAMES)
def test_each_loads_and_says_where_it_comes_from(name: str) -> None:
    manifest = FittedModel.load(find_model(name)).manifest
    suite = find_suite("train")
    assert manifest.spec.name == name
    assert manifest.training.suite == "train"
    # Fitted to the suite as it is now: a changed suite means `make models`.
    known = {item.name: item.scenario.digest() for item in suite}
    assert manifest.training.scenarios.items() <= known.items()
    assert manifest.training.graphs == ("debian",)
    assert manifest.training.label.startswith("counterfactual:")
    # Better than the class that is more frequent, and than any single feature.
    metrics = {key: value or 0.0 for key, value in manifest.metrics.items()}
    assert metrics["balanced_accuracy"] > metrics["single_balanced_accuracy"]
    assert metrics["balanced_accuracy"] > metrics["majority_balanced_accuracy"] == 0.5


def test_no_two_decide_alike(home: Home) -> None:
    engine = ReplayEngine(Trace.open(find_trace("debian-demo", home)))
    scenario = engine.scenario.change(policy="massivegnn", buffer=0.25)
    told: dict[str, tuple[bool, ...]] = {}
    for name in NAMES:
        run_dir = home.runs / name
        result = engine.run(scenario, Spec.parse(name), RunOptions(home, run_dir))
        assert result.summary["valid_share"] == 1.0
        told[name] = tuple(d["decision"]["replace"] for d in result.decisions)
    assert len(set(told.values())) == len(NAMES)
    for name, decisions in told.items():
        assert 0 < sum(decisions) < len(decisions), f"{name} is a constant"


def test_without_its_directory_a_classifier_fails_by_name(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(MODELS._entries, "svm")
    with pytest.raises(MissingPathError, match=r"no model is named 'svm'.*rudder fit"):
        run_tracked(Scenario(), Spec.parse("svm"), home, None, lambda phase, share: None)
