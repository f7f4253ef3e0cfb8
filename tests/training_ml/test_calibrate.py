"""``rudder calibrate``: a threshold for a controller whose p(replace) is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rudder_training_ml.calibrate import FITTED, auc, balanced_accuracy, best_threshold, situations
from rudder_training_ml.collection import Collection
from rudder_training_ml.examples import ExampleTable, examples_path

from rudder.cli.app import main
from rudder.errors import ModelError, TrainingDataError
from rudder.home import Home
from rudder.model.calibration import CALIBRATION_FILE, Calibration
from rudder.plugins import load_file

SUITE = """
summary = "small"

[base]
graph = "sbm:nodes=900,classes=3"
parts = 2
partition_method = "random"
batch_size = 20
epochs = 3
policy = "massivegnn:alpha=0.05,interval=3"

[scenarios.drifting]
seed_order = "communities"
phases = 3
"""
PLUGIN = '''
from rudder import Controller, Decision
from rudder.registries import CONTROLLERS


class Leaning(Controller):
    """p(replace) leans to replace: 0.7 and more, the more the lower %-Hits."""

    def __init__(self, threshold=None, calibration="", silent=False, at=0.7):
        self.silent, self.at = silent, at

    def _decide(self, observation):
        p = self.at + 0.3 * (1 - observation.window.hit_rate)
        identity = None if self.silent else {"identity": {"at": self.at}}
        return Decision(replace=p >= 0.5, p_replace=min(p, 1.0), details=identity)


CONTROLLERS.register("test-leaning", Leaning, summary="for tests")
'''
Command = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data directory with a small labelled collection."""
    home = Home.resolve(tmp_path_factory.mktemp("calibrate"))
    (home.root / "small.toml").write_text(SUITE)
    (home.root / "leaning.py").write_text(PLUGIN)
    load_file(home.root / "leaning.py")
    where = ["--home", str(home.root), "--quiet"]
    assert (
        main(["collect", str(home.root / "small.toml"), "--seeds", "4", "--jobs", "1", *where]) == 0
    )
    assert main(["label", "--rule", "counterfactual:horizon=8", "--jobs", "1", *where]) == 0
    return home


@pytest.fixture
def calibrate(labelled: Home, capsys: pytest.CaptureFixture[str]) -> Command:
    def call(controller: str, *options: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main(["calibrate", controller, "--home", str(labelled.root), "--json", *options])
        said = capsys.readouterr()
        return code, json.loads(said.out if code == 0 else said.err.splitlines()[-1])

    return call


def test_a_threshold_is_fitted_judged_and_kept(labelled: Home, calibrate: Command) -> None:
    code, told = calibrate("test-leaning", "--name", "one", "--situations", "40")
    assert code == 0
    # It always says replace; half of the situations want keep.
    assert told["balanced_accuracy_without"] == 0.5
    assert told["replace_share_without"] == 1.0
    assert told["threshold"] > 0.7
    assert told["fitted_balanced_accuracy"] >= 0.5
    kept = Calibration.read(labelled.models / "one")
    assert kept.threshold_for({"at": 0.7}) == told["threshold"]
    assert kept.training.label.startswith("counterfactual")
    assert kept.training.seeds == (0, 1, 2)
    assert kept.training.traces
    assert (
        calibrate("test-leaning", "--name", "two", "--situations", "40")[1]["threshold"]
        == (told["threshold"])
    )


def test_it_holds_for_what_it_was_fitted_to_alone(labelled: Home, calibrate: Command) -> None:
    assert calibrate("test-leaning", "--name", "mine")[0] == 0
    kept = Calibration.read(labelled.models / "mine")
    with pytest.raises(ModelError, match=r"at: 0\.7 instead of 0\.6"):
        kept.threshold_for({"at": 0.6})
    path = labelled.models / "mine" / CALIBRATION_FILE
    path.write_text(path.read_text().replace('"threshold": 0.', '"threshold": 0.0'))
    with pytest.raises(ModelError, match="was edited"):
        Calibration.read(path.parent)


def test_no_trace_is_both_fitted_to_and_judged_by(labelled: Home) -> None:
    collection = Collection.open(None, labelled)
    table = ExampleTable.read(examples_path(collection.folder, "counterfactual"))
    given = situations(collection, table, 40, 0)
    seeds = {use: {s.task.seed for s in given if s.use == use} for use in ("fitted", "judged")}
    assert seeds["judged"] == {3}
    assert not seeds["fitted"] & seeds["judged"]
    labels = [s.replace for s in given if s.use == FITTED]
    assert sum(labels) == len(labels) / 2
    assert situations(collection, table, 40, 0) == given
    assert situations(collection, table, 40, 1) != given


@pytest.mark.parametrize(
    ("controller", "options", "why"),
    [
        ("random", (), "says no p(replace), or not what shapes it"),
        ("test-leaning:silent=true", (), "only agents that score"),
        ("test-leaning:threshold=0.5", (), "has a threshold already"),
        ("test-leaning", ("--rule", "paper"), "no examples at"),
        ("test-leanin", (), "did you mean"),
        ("test-leaning", ("--name", "a/b"), "cannot be named"),
    ],
)
def test_wrong_use(calibrate: Command, controller: str, options: Any, why: str) -> None:
    code, told = calibrate(controller, *options)
    assert code == 2
    assert why in told["message"]


def test_too_few_situations_are_told(labelled: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rudder_training_ml.calibrate.LEAST", 10_000)
    collection = Collection.open(None, labelled)
    table = ExampleTable.read(examples_path(collection.folder, "counterfactual"))
    with pytest.raises(TrainingDataError, match="calibrating needs 10000"):
        situations(collection, table, 40, 0)


def test_what_is_no_calibration_is_not_replaced(labelled: Home, calibrate: Command) -> None:
    (labelled.models / "taken").mkdir()
    code, told = calibrate("test-leaning", "--name", "taken")
    assert (code, told["error"]) == (2, "PathTakenError")


def test_the_best_threshold_by_hand() -> None:
    p, right = np.array([0.1, 0.4, 0.6, 0.9]), np.array([False, False, True, True])
    assert best_threshold(p, right) == pytest.approx(0.5)
    # One wrong way round: thresholds below 0.4 and above 0.6 are equally good (0.75); the middle
    # one of them is taken.
    crossed = np.array([False, True, False, True])
    assert balanced_accuracy(p >= best_threshold(p, crossed), crossed) == 0.75
    assert auc(p, right) == 1.0
    assert auc(p, crossed) == 0.75


def test_an_empty_folder_has_no_calibration(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="rudder calibrate"):
        Calibration.read(tmp_path)
