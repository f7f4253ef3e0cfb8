"""Each check can fail: a controller broken on purpose for every one of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rudder import Capabilities, Controller, Decision, Observation, Task
from rudder.conformance import CHECKS, CheckRecord, Subject, check_controller, controller_checks
from rudder.conformance.situations import episode, extremes
from rudder.errors import SpecError, UnknownNameError
from rudder.plugins import load_file


class Good(Controller):
    """Replaces when much is stale: the base of all that is broken below."""

    def _decide(self, observation: Observation) -> Decision:
        return Decision(replace=observation.window.stale_share > 0.4, explanation="stale")


class BrokenConstructor(Good):
    def __init__(self) -> None:
        raise RuntimeError("no")


class NoTags(Good):
    tags: ClassVar[Any] = {"stochastic": True}


class NoDeadline(Good):
    tags = Capabilities(deadline_s=0.0)


class HoldsALock(Good):
    def __init__(self) -> None:
        self.plain = 3
        self.lock = threading.Lock()


class CannotReset(Good):
    def _reset(self, task: Task) -> None:
        raise FileNotFoundError("weights.bin")


class Slow(Good):
    tags = Capabilities(deadline_s=0.5)

    def _decide(self, observation: Observation) -> Decision:
        if observation.index == 3:
            time.sleep(1.5)
        return super()._decide(observation)


class ShareTwo(Good):
    def _decide(self, observation: Observation) -> Decision:
        return Decision(replace=True, share=2.0)


class AnswersWords(Good):
    def _decide(self, observation: Observation) -> Any:
        return "replace"


class ExplainsInNumbers(Good):
    def _decide(self, observation: Observation) -> Decision:
        return Decision(replace=True, explanation=7)  # type: ignore[arg-type]


class Rambles(Good):
    def _decide(self, observation: Observation) -> Decision:
        return Decision(replace=True, explanation="and so on " * 1000)


class Forges(Good):
    def _decide(self, observation: Observation) -> Decision:
        object.__setattr__(observation.window, "hit_rate", 1.0)
        return super()._decide(observation)


class Coin(Good):
    """Draws from the system, whatever the seed."""

    def _decide(self, observation: Observation) -> Decision:
        import random

        return Decision(replace=random.SystemRandom().random() < 0.5)


class ReadsTheSeed(Good):
    def _reset(self, task: Task) -> None:
        self.offset = task.seed + task.rank

    def _decide(self, observation: Observation) -> Decision:
        return Decision(replace=(observation.index + self.offset) % 2 == 0)


class Remembers(Good):
    """Replaces five times in its life."""

    left = 5

    def _decide(self, observation: Observation) -> Decision:
        self.left -= 1
        return Decision(replace=self.left > 0)


class CannotClose(Good):
    def _reset(self, task: Task) -> None:
        self.weights: list[int] | None = [1]

    def _close(self) -> None:
        del self.weights


class WantsHistory(Good):
    def _decide(self, observation: Observation) -> Decision:
        return Decision(replace=observation.history[-1].reward > 0)


class WantsTheBeginning(Good):
    def _decide(self, observation: Observation) -> Decision:
        if len(observation.history) >= 8:
            raise ValueError("too much to read")
        return super()._decide(observation)


class Divides(Good):
    def _decide(self, observation: Observation) -> Decision:
        share = observation.window.fetched / observation.facts.capacity
        return Decision(replace=share > 0.1)


class ReadsSeconds(Good):
    def _decide(self, observation: Observation) -> Decision:
        return Decision(replace=observation.window.stall_s > 0.5)


class AsksTheEngine(Good):
    def _decide(self, observation: Observation) -> Decision:
        return Decision(replace=observation.modelled_seconds)


class Homeless(Good):
    tags = Capabilities(own_process=True)


class Tagged(Coin):
    tags = Capabilities(stochastic=True, repeatable=False, reads_seconds=True)


class Hangs(Good):
    tags = Capabilities(deadline_s=0.5)
    gate = threading.Event()

    def _decide(self, observation: Observation) -> Decision:
        self.gate.wait(30)
        return Decision(replace=False)


class Babbles(Good):
    tags = Capabilities(llm=True)

    def _decide(self, observation: Observation) -> Decision:
        return Decision.keep("cannot tell", outcome="invalid")


class Crashes(Good):
    tags = Capabilities(llm=True)

    def _decide(self, observation: Observation) -> Decision:
        raise ConnectionError("refused")


def records(controller: Callable[[], Controller]) -> dict[str, CheckRecord]:
    subject = Subject("broken", controller)
    return {r.check: r for r in check_controller(subject)}


BROKEN: list[tuple[type[Controller], str, str]] = [
    (BrokenConstructor, "builds", "RuntimeError: no"),
    (NoTags, "builds", "tags must be"),
    (NoDeadline, "builds", "deadline_s must be above 0"),
    (HoldsALock, "can_be_pickled_before_reset", "lock (lock)"),
    (CannotReset, "resets", "weights.bin"),
    (Slow, "answers_in_time", "did not come back within 0.5 s"),
    (ShareTwo, "decisions_are_valid", "share must lie in 0..1, found 2.0"),
    (AnswersWords, "decisions_are_valid", "answered 'replace'"),
    (ExplainsInNumbers, "explains_in_text", "explanation is 7"),
    (Rambles, "explains_in_text", "10000 characters"),
    (Forges, "leaves_observations_alone", "changed window"),
    (Coin, "same_seed_same_decisions", "with the same seed"),
    (ReadsTheSeed, "ignores_the_seed_unless_stochastic", "with another seed"),
    (Remembers, "reset_forgets_the_run_before", "after a second reset"),
    (CannotClose, "closes_at_any_time", "weights"),
    (WantsHistory, "works_without_history", "IndexError"),
    (WantsTheBeginning, "works_with_a_full_history", "too much to read"),
    (Divides, "works_at_the_extremes", "there is no buffer"),
    (ReadsSeconds, "ignores_the_engine", "in a replay"),
    (AsksTheEngine, "ignores_the_engine", "in a replay"),
    (Homeless, "works_in_its_own_process", "in no registry"),
]


def test_every_check_has_a_controller_that_fails_it() -> None:
    assert {check for _, check, _ in BROKEN} == {check.name for check in CHECKS}


@pytest.mark.parametrize(
    ("controller", "check", "message"), BROKEN, ids=[f"{c.__name__}-{n}" for c, n, _ in BROKEN]
)
def test_a_broken_controller_fails_its_check(
    controller: type[Controller], check: str, message: str
) -> None:
    record = records(controller)[check]
    assert record.status == "failed"
    assert message in record.detail


def test_a_good_controller_passes_all_that_apply() -> None:
    found = records(Good)
    assert list(found) == [check.name for check in CHECKS]
    assert [r.check for r in found.values() if r.status != "passed"] == ["works_in_its_own_process"]
    assert found["works_in_its_own_process"].detail == "it runs in the trainer's process"


def test_tags_select_checks_and_say_why() -> None:
    skipped = {r.check: r.detail for r in records(Tagged).values() if r.status == "skipped"}
    assert skipped["same_seed_same_decisions"] == "its tags say that it is not repeatable"
    assert skipped["ignores_the_engine"] == "its tags say that it reads seconds"
    assert "depends on the seed" in skipped["ignores_the_seed_unless_stochastic"]
    assert not [r for r in records(Tagged).values() if r.status == "failed"]


def test_after_a_hang_the_others_are_skipped() -> None:
    start = time.perf_counter()
    found = list(records(Hangs).values())
    Hangs.gate.set()
    assert time.perf_counter() - start < 5
    assert [r.status for r in found[:2]] == ["passed", "passed"]
    failed = [r for r in found if r.status == "failed"]
    assert len(failed) == 1
    assert {r.detail for r in found[3:]} == {f"{failed[0].check} hangs"}


def test_a_language_model_may_answer_invalidly_but_not_fail() -> None:
    assert records(Babbles)["decisions_are_valid"].status == "passed"
    record = records(Crashes)["decisions_are_valid"]
    assert record.status == "failed"
    assert "ConnectionError: refused" in record.detail


def test_wrong_use_is_raised_not_recorded() -> None:
    with pytest.raises(UnknownNameError):
        check_controller("alwais")
    with pytest.raises(SpecError, match="interval must be"):
        check_controller("fixed:interval=0")
    with pytest.raises(SpecError, match="no parameter"):
        check_controller("always:interval=1")


def test_parameters_for_pytest_hold_one_id_per_controller_and_check() -> None:
    ids = [p.id for p in controller_checks(["always", "random:p=0.5"])]
    assert len(ids) == len(set(ids))
    assert "always-same_seed_same_decisions" in ids
    assert "random:p=0.5-same_seed_same_decisions" in ids
    assert "random:p=0.5-ignores_the_seed_unless_stochastic" not in ids


def test_the_episode_is_plausible() -> None:
    observations = episode()
    assert [len(o.history) for o in observations] == [0, 1, 2, 3, 4, 5, 6, 7] + [8] * 8
    assert any(past.window for o in observations for past in o.history)
    assert all(o.window.hit_rate > 0 and o.window.compute_s > 0 for o in observations[1:])
    assert episode() == observations
    names = [name for name, _ in extremes()]
    assert len(names) == len(set(names)) == 8


APART = '''
"""Decides by its process: differently in the trainer's and in its own."""
import sys

from rudder import Capabilities, Controller, Decision
from rudder.registries import CONTROLLERS


class Twofaced(Controller):
    tags = Capabilities(own_process=True)

    def _decide(self, observation):
        return Decision(replace="pytest" in sys.modules)


class Honest(Controller):
    tags = Capabilities(own_process=True)

    def _decide(self, observation):
        return Decision(replace=observation.index % 2 == 0)


CONTROLLERS.register("test-twofaced", Twofaced)
CONTROLLERS.register("test-honest", Honest)
'''


@pytest.fixture
def statuses(tmp_path: Path) -> Callable[[str], CheckRecord]:
    path = tmp_path / "apart.py"
    path.write_text(APART)
    plugin = load_file(path)
    return lambda name: check_controller(name, [plugin])[-1]


def test_a_process_of_its_own_is_tried(statuses: Callable[[str], CheckRecord]) -> None:
    assert statuses("test-honest").status == "passed"
    assert "in its own process" in statuses("test-twofaced").detail


def test_what_runs_in_replay_only_is_built_and_no_more() -> None:
    records = check_controller("timing-oracle")
    assert [(r.check, r.status) for r in records[:1]] == [("builds", "passed")]
    assert {(r.status, r.detail) for r in records[1:]} == {("skipped", "it runs in replay only")}
