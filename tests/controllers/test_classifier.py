"""Classifier controllers, ``cascade`` and ``shuffled``, on a model whose answers are known."""

from __future__ import annotations

import dataclasses
import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from rudder import Capabilities, Controller, Decision, Observation
from rudder.conformance import check_controller
from rudder.conformance.situations import episode, task
from rudder.errors import ControllerError, MissingPathError, ModelError, SpecError
from rudder.home import Home
from rudder.model import Column, Estimator, ModelManifest, Support, Training, sha256
from rudder.observation import FEATURES, SCHEMA_VERSION
from rudder.registries import CONTROLLERS, ESTIMATORS
from rudder.result import MINIBATCH_SCHEMA, RunResult
from rudder.running import run_tracked
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.steering import build_controller

COLUMNS = ("hit_rate", "stale_share", "progress")
WEIGHTS = "weights.json"


class Sloped(Estimator):
    """p(replace) = the first column plus an offset, which adaptation moves."""

    files: ClassVar[tuple[str, ...]] = (WEIGHTS,)
    adaptable: ClassVar[bool] = True

    def __init__(self) -> None:
        self.offset = 0.0

    def fit(self, *_: Any) -> dict[str, Any]:
        raise AssertionError("not fitted here")

    def predict(self, rows: Any) -> Any:
        return np.clip(rows[:, 0] + self.offset, 0, 1)

    def save(self, folder: Path) -> None:
        (folder / WEIGHTS).write_text(json.dumps(self.offset))

    def restore(self, folder: Path, columns: int) -> None:
        self.offset = json.loads((folder / WEIGHTS).read_text())

    def adapt(self, rows: Any, labels: Any) -> None:
        self.offset += 0.01 * (2 * int(labels[0]) - 1)


class Rigid(Sloped):
    adaptable: ClassVar[bool] = False


ESTIMATORS.register("test-sloped", Sloped)
ESTIMATORS.register("test-rigid", Rigid)


@pytest.fixture
def make_model(tmp_path: Path) -> Callable[..., Path]:
    """Writes a model whose support is what the episode shows, or something else."""

    def make(
        name: str = "sloped", estimator: str = "test-sloped", shift: float = 0.0, **fields: Any
    ) -> Path:
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        ESTIMATORS.build(estimator).save(folder)
        values = {f.name: f for f in FEATURES}
        rows = np.array([[values[c].value(o) for c in COLUMNS] for o in episode()]) + shift
        training = Training(
            suite="s", suite_digest="d", scenarios={}, graphs=(), traces=(), seeds=(),
            collection="c", label="counterfactual", examples={},
        )  # fmt: skip
        ModelManifest(
            name=name,
            estimator=ESTIMATORS.resolve(estimator).to_dict(),
            observation_schema=SCHEMA_VERSION,
            columns=tuple(Column(name=c, unit=values[c].unit) for c in COLUMNS),
            files={WEIGHTS: sha256(folder / WEIGHTS)},
            support=Support.of(rows),
            training=training,
            **fields,
        ).write(folder)
        return folder

    return make


def decide(spec: str, observations: list[Observation]) -> list[Decision]:
    controller = build_controller(spec)
    controller.reset(task())
    try:
        return [controller.decide(o) for o in observations]
    finally:
        controller.close()


def test_a_classifier_replaces_from_its_threshold_on(make_model: Callable[..., Path]) -> None:
    folder = make_model(threshold=0.45)
    seen = episode()
    answers = decide(f"xgboost:model={folder}", seen)
    rates = [o.window.hit_rate for o in seen]
    assert [a.p_replace for a in answers] == rates
    assert [a.replace for a in answers] == [rate >= 0.45 for rate in rates]
    assert len({a.replace for a in answers}) == 2
    assert all(a.in_support and a.outcome == "valid" for a in answers)
    # A threshold of the spec's own goes before the stored one; it is reached, not passed.
    own = decide(f"xgboost:model={folder},threshold={rates[3]!r}", seen)
    assert [a.replace for a in own] == [rate >= rates[3] for rate in rates]


def test_it_says_what_is_unlike_its_training_data(make_model: Callable[..., Path]) -> None:
    folder = make_model()
    odd = dataclasses.replace(episode()[-1], progress=40.0)
    (answer,) = decide(f"mlp:model={folder}", [odd])
    assert answer.in_support is False
    assert "unlike the training data: progress" in answer.explanation
    assert answer.outcome == "valid"


def test_without_its_model_it_fails_by_name(
    make_model: Callable[..., Path], home: Home, tmp_path: Path
) -> None:
    folder = make_model()
    shutil.rmtree(folder)
    with pytest.raises(MissingPathError, match=str(folder)):
        decide(f"forest:model={folder}", episode())
    with pytest.raises(MissingPathError, match=r"no model at .*gone"):
        run_tracked(
            Scenario(), Spec.parse("forest:model=gone"), home, None, lambda *_: None,
            engine="distdgl",
        )  # fmt: skip


def test_it_says_whether_its_model_can_be_read_here(make_model: Callable[..., Path]) -> None:
    folder = make_model()
    (here,) = CONTROLLERS.build(Spec("mlp", {"model": str(folder)})).needs()
    assert here.ok is True
    other = make_model("other", compatible={"no-such-library": ">=1"})
    (missing,) = CONTROLLERS.build(Spec("mlp", {"model": str(other)})).needs()
    assert missing.ok is False
    assert "no-such-library" in missing.found
    assert "rudder-gnn[classifiers]" in missing.found


def test_adaptation_learns_from_settled_replacements_once(
    make_model: Callable[..., Path],
) -> None:
    folder = make_model()
    seen = episode()
    last: dict[int, float] = {}
    for observation in seen:
        for past in observation.history:
            if past.window and past.decision.replace and past.reward:
                last[past.minibatch] = past.reward
    assert last
    still = decide(f"mlp:model={folder}", seen)
    moved = decide(f"mlp:model={folder},adapt=true", seen)
    offset = moved[-1].p_replace - still[-1].p_replace  # type: ignore[operator]
    assert offset == pytest.approx(0.01 * sum(1 if r > 0 else -1 for r in last.values()))
    assert decide(f"mlp:model={folder}", seen) != moved


def test_a_model_that_cannot_adapt_says_so(make_model: Callable[..., Path]) -> None:
    folder = make_model(estimator="test-rigid")
    with pytest.raises(ControllerError, match=r"adapt=true.*test-rigid"):
        decide(f"svm:model={folder},adapt=true", episode())


def test_a_changed_model_is_refused_at_reset(make_model: Callable[..., Path]) -> None:
    folder = make_model()
    (folder / WEIGHTS).write_text("0.5")
    with pytest.raises(ModelError, match=WEIGHTS):
        decide(f"svm:model={folder}", episode())


@pytest.mark.parametrize("spec", ["mlp:threshold=1.5", "mlp:model=''", "mlp:threshold=true"])
def test_wrong_parameters(spec: str) -> None:
    with pytest.raises(SpecError):
        build_controller(spec.replace("''", '""'))


def test_classifiers_keep_the_contract(make_model: Callable[..., Path]) -> None:
    folder = make_model()
    for spec in (
        f"mlp:model={folder}",
        f"mlp:model={folder},adapt=true",
        str(Spec("cascade", {"inside": f"mlp:model={folder}", "outside": "random"})),
    ):
        assert [r for r in check_controller(spec) if r.status == "failed"] == []


def test_cascade_asks_the_other_only_out_of_its_depth(make_model: Callable[..., Path]) -> None:
    folder = make_model()
    inside, seen = f"mlp:model={folder},threshold=0", episode()
    spec = Spec("cascade", {"inside": inside, "outside": "random:p=0"})
    answers = decide(str(spec), [*seen, dataclasses.replace(seen[-1], progress=40.0)])
    assert all(a.replace and a.in_support for a in answers[:-1])
    assert answers[-1].replace is False
    assert answers[-1].in_support is False
    assert "outside was asked" in answers[-1].explanation


def test_cascade_takes_on_what_its_parts_need(make_model: Callable[..., Path]) -> None:
    tags = build_controller("cascade:inside=mlp,outside=random").tags
    assert tags.stochastic
    assert tags.fitted_model
    assert not build_controller("cascade:inside=mlp,outside=always").tags.stochastic
    with pytest.raises(SpecError, match="has no fitted model"):
        build_controller("cascade:inside=always")
    with pytest.raises(SpecError, match="steer real training"):
        build_controller("cascade:outside=timing-oracle")


class Sharing(Controller):
    """Needs what is loaded once for all trainers."""

    tags: Capabilities = Capabilities(shared=True)
    loads: ClassVar[int] = 0

    def _load(self, progress: Any) -> str:
        Sharing.loads += 1
        return "weights"

    def _adopt(self, loaded: str) -> None:
        self.loaded = loaded

    def _decide(self, observation: Observation) -> Decision:
        return Decision(replace=False, explanation=self.loaded)


def test_cascade_hands_on_what_its_parts_share(make_model: Callable[..., Path]) -> None:
    CONTROLLERS.register("test-sharing", Sharing)  # here: conformance lists what modules register
    spec = str(Spec("cascade", {"inside": f"mlp:model={make_model()}", "outside": "test-sharing"}))
    first, other = build_controller(spec), build_controller(spec)
    assert first.tags.shared
    other.adopt(first.load(lambda phase, share: None))
    other.reset(task())
    answer = other.decide(dataclasses.replace(episode()[-1], progress=40.0))
    assert "weights" in answer.explanation
    assert Sharing.loads == 1


def run_of(folder: Path, answers: dict[int, list[bool]]) -> Path:
    """A finished run that gave each rank's questions these answers."""
    plain = dataclasses.asdict(Decision(replace=False))
    decisions = [
        {"rank": rank, "question": k, "decision": {**plain, "replace": replace}}
        for rank, replaces in answers.items()
        for k, replace in enumerate(replaces)
    ]
    table = pa.table({n: [] for n in MINIBATCH_SCHEMA.names}, schema=MINIBATCH_SCHEMA)
    RunResult(Scenario(), Spec("always"), table, decisions, {"run_id": "x"}).save(folder)
    return folder


def test_shuffled_keeps_the_rate_and_loses_the_moment(tmp_path: Path) -> None:
    own = [k < 5 for k in range(16)]
    run = run_of(tmp_path / "run", {0: own, 1: [not a for a in own]})
    given = decide(f"shuffled:run={run}", episode())
    assert sum(a.replace for a in given) == 5
    assert [a.replace for a in given] != own
    assert [a.explanation == "changed" for a in given] == [
        a.replace != b for a, b in zip(given, own, strict=True)
    ]
    assert decide(f"shuffled:run={run}", episode())[3].replace == given[3].replace
    other = [a.replace for a in decide(f"shuffled:run={run},draw=1", episode())]
    assert sum(other) == 5
    assert other not in (own, [a.replace for a in given])
    module = importlib.import_module(CONTROLLERS.target("shuffled").__module__)
    changed = module.changed_share(run, 1, 0)
    assert changed == sum(a.explanation == "changed" for a in given) / 16


def test_shuffled_keeps_the_contract(tmp_path: Path) -> None:
    answers = [k % 3 == 0 for k in range(16)]
    run = run_of(tmp_path / "run", dict.fromkeys(range(4), answers))
    records = check_controller(f"shuffled:run={run}")
    assert [r for r in records if r.status == "failed"] == []


def test_shuffled_needs_a_run_with_decisions(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="needs run"):
        build_controller("shuffled")
    run = run_of(tmp_path / "run", {1: [True]})
    with pytest.raises(ControllerError, match="no decisions of rank 0"):
        decide(f"shuffled:run={run}", episode())
