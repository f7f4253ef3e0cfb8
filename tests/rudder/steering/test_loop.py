"""The clock: when questions go out, when answers apply, what deadlines do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from rudder import Controller, Decision, Observation, Spec, Task
from rudder.decision import Effect
from rudder.errors import ControllerError
from rudder.result import MinibatchRow
from rudder.steering import InlineAsker, Steering, ThreadAsker, build_controller, steer

Make = Callable[..., MinibatchRow]


@dataclass
class ModelClock:
    """A clock that only moves when told to."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Recorder(Controller):
    """Answers by a function and remembers what it saw."""

    answer: Callable[[Observation], Decision] = lambda o: Decision(replace=True)
    seen: list[Observation] = field(default_factory=list)
    closed: int = 0

    def _decide(self, observation: Observation) -> Decision:
        self.seen.append(observation)
        return self.answer(observation)

    def _close(self) -> None:
        self.closed += 1


class Gated(Controller):
    """Answers when the gate opens; counts how many questions it works on at a time."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked: list[int] = []

    def _decide(self, observation: Observation) -> Decision:
        self.asked.append(observation.minibatch)
        self.gate.wait(30)
        return Decision(replace=True)


def drive(
    steering: Steering,
    make_row: Make,
    minibatches: int,
    clock: ModelClock | None = None,
    pull_s: float = 1.0,
) -> list[int]:
    """Pull minibatches; each takes ``pull_s`` modelled seconds. Returns the steps that replaced."""
    replaced = []
    for step in range(minibatches):
        turn = steering.before_pull(step)
        if clock is not None:
            clock.seconds += turn.waited_s + pull_s
        replace = turn.decision is not None and turn.decision.replace
        if replace:
            replaced.append(step)
        steering.after_pull(make_row(step, replaced=10 if replace else 0))
    return replaced


@pytest.mark.parametrize("spec", ["fixed:interval=4", "massivegnn:interval=4"])
def test_fixed_replaces_at_every_fourth_minibatch(
    spec: str, make_task: Callable[..., Task], make_row: Make
) -> None:
    steering = steer(spec, make_task(), mode="sync")
    # Steps count from 0, minibatches from 1: these are the 4th, 8th, 12th, across the epoch at 50.
    assert drive(steering, make_row, 58) == [3 + 4 * k for k in range(14)]
    steering.close()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("none", []),
        ("static", []),
        # No observation precedes the first minibatch, so nothing can be decided for it.
        ("always", list(range(1, 20))),
        ("fixed:interval=1", list(range(1, 20))),
        # Rows of 50 % hits and stale slots: below a target of 0.6 whenever it has rested for four.
        ("threshold:target=0.6", [4, 8, 12, 16]),
        ("threshold:target=0.5,drop=0.01", []),
        ("random:p=1", list(range(1, 20))),
        ("random:p=0", []),
        # Found once as [m for m in range(1, 20) if random.Random(f"7:0:{m}").random() < 0.3].
        ("random:p=0.3", [1, 4, 9, 15, 17, 18]),
    ],
)
def test_golden_sequences_in_step(
    spec: str, expected: list[int], make_task: Callable[..., Task], make_row: Make
) -> None:
    steering = steer(spec, make_task(seed=7), mode="sync")
    assert drive(steering, make_row, 20) == expected
    assert steering.close().to_dict()["decisions"] == 19


def test_replay_applies_an_answer_at_the_first_pull_after_it_arrived(
    make_task: Callable[..., Task], make_row: Make
) -> None:
    clock, controller = ModelClock(), Recorder()
    steering = Steering(
        InlineAsker(controller, clock, latency_s=2.5), make_task(), modelled_seconds=True
    )
    # Pull k is planned at second k. Asked at 1 (one pull done), arrives at 3.5, applies to the
    # pull planned at 4; that pull returns at 5, the next question goes out, and so on.
    assert drive(steering, make_row, 13, clock) == [4, 8, 12]
    assert [o.minibatch for o in controller.seen] == [1, 5, 9, 13]
    assert [o.window.minibatches for o in controller.seen] == [1, 4, 4, 4]
    assert all(o.modelled_seconds for o in controller.seen)
    tally = steering.close()
    assert tally.latencies_s == [2.5, 2.5, 2.5]
    assert tally.withdrawn == 1
    assert controller.closed == 1


def test_an_answer_that_arrives_exactly_when_a_pull_is_planned_applies_to_it(
    make_task: Callable[..., Task], make_row: Make
) -> None:
    clock = ModelClock()
    steering = Steering(InlineAsker(Recorder(), clock, latency_s=3.0), make_task())
    assert drive(steering, make_row, 9, clock) == [4, 8]


def test_sync_waits_for_the_modelled_answer_and_says_how_long(
    make_task: Callable[..., Task], make_row: Make
) -> None:
    clock = ModelClock()
    steering = Steering(InlineAsker(Recorder(), clock, latency_s=0.3), make_task(), mode="sync")
    waits = []
    for step in range(4):
        turn = steering.before_pull(step)
        waits.append(turn.waited_s)
        clock.seconds += turn.waited_s + 0.1
        steering.after_pull(make_row(step))
    assert waits == pytest.approx([0.0, 0.3, 0.3, 0.3])
    assert steering.close().valid == 3


def test_a_modelled_answer_past_the_deadline_is_a_timeout_in_both_modes(
    make_task: Callable[..., Task], make_row: Make
) -> None:
    for mode in ("sync", "async"):
        clock = ModelClock()
        steering = Steering(
            InlineAsker(Recorder(), clock, latency_s=5.0),
            make_task(),
            mode=mode,  # type: ignore[arg-type]
            deadline_s=2.0,
        )
        assert drive(steering, make_row, 7, clock) == []
        summary = steering.close().to_dict()
        assert summary["timeouts"] == summary["asked"] > 1
        assert summary["decisions"] == 0
        assert summary["valid_share"] == 0.0


def test_a_busy_controller_takes_the_next_modelled_question_only_when_it_is_free(
    make_task: Callable[..., Task], make_row: Make
) -> None:
    clock = ModelClock()
    slow_once = iter([5.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    asker = InlineAsker(Recorder(), clock, latency_s=0.0)

    def ask(observation: Observation) -> None:
        asker._latency_s = next(slow_once)
        InlineAsker.ask(asker, observation)

    asker.ask = ask  # type: ignore[method-assign]
    steering = Steering(asker, make_task(), deadline_s=3.0)
    # Asked at 1, free at 6, given up at 4 (deadline); asked again at 5, answered at 6.
    assert drive(steering, make_row, 7, clock) == [6]
    assert steering.close().timeouts == 1


@pytest.fixture
def gated() -> Iterator[Gated]:
    controller = Gated()
    yield controller
    controller.gate.set()


def test_async_never_waits_and_never_has_two_questions_open(
    gated: Gated, make_task: Callable[..., Task], make_row: Make
) -> None:
    steering = Steering(ThreadAsker(gated), make_task())
    start = time.perf_counter()
    turns = []
    for step in range(10):
        turns.append(steering.before_pull(step))
        steering.after_pull(make_row(step))
    assert time.perf_counter() - start < 5, "ten pulls waited for a controller that never answers"
    assert all(turn == (None, 0.0) for turn in turns)
    assert gated.asked in ([], [1])
    gated.gate.set()
    _until(lambda: steering._asker.poll() is not None)
    assert steering.before_pull(10).decision is not None
    steering.after_pull(make_row(10))
    _until(lambda: gated.asked == [1, 11])
    steering.close()


def test_a_late_answer_is_dropped_and_the_next_question_goes_out(
    gated: Gated, make_task: Callable[..., Task], make_row: Make
) -> None:
    steering = Steering(ThreadAsker(gated), make_task(), deadline_s=0.5)
    steering.before_pull(0)
    steering.after_pull(make_row(0))
    _until(lambda: gated.asked == [1])
    time.sleep(0.55)
    assert steering.before_pull(1).decision is None  # closes the question
    steering.after_pull(make_row(1))  # asks the next one
    gated.gate.set()  # answers the first, too late, and then the second
    _until(lambda: gated.asked == [1, 2])
    _until(lambda: steering._asker.poll() is not None)
    answer = steering._asker.poll()
    assert answer is not None
    assert answer.question == 1
    assert steering.close().timeouts == 1


def test_sync_gives_up_at_the_deadline(
    gated: Gated, make_task: Callable[..., Task], make_row: Make
) -> None:
    steering = Steering(ThreadAsker(gated), make_task(), mode="sync", deadline_s=0.1)
    steering.before_pull(0)
    steering.after_pull(make_row(0))
    turn = steering.before_pull(1)
    assert turn.decision is None
    assert 0.05 < turn.waited_s < 2
    assert steering.close().to_dict()["timeouts"] == 1


def test_close_does_not_wait_for_a_hung_thread(
    gated: Gated, make_task: Callable[..., Task], make_row: Make, caplog: pytest.LogCaptureFixture
) -> None:
    steering = Steering(ThreadAsker(gated, grace_s=0.1), make_task())
    steering.before_pull(0)
    steering.after_pull(make_row(0))
    _until(lambda: gated.asked == [1])
    start = time.perf_counter()
    tally = steering.close()
    assert time.perf_counter() - start < 2
    assert tally.withdrawn == 1
    assert tally.to_dict()["valid_share"] is None
    assert "left behind" in caplog.text
    assert steering.close() is tally


def test_errors_and_invalid_answers_are_counted_and_keep_the_buffer(
    make_task: Callable[..., Task], make_row: Make
) -> None:
    def answer(observation: Observation) -> Decision:
        if observation.index == 0:
            raise ZeroDivisionError("boom")
        if observation.index == 1:
            return Decision(replace=True, share=2.0)
        if observation.index == 2:
            return "replace"  # type: ignore[return-value]
        if observation.index == 3:
            raise SystemExit(3)
        return Decision(replace=True)

    steering = Steering(ThreadAsker(Recorder(answer)), make_task(), mode="sync")
    assert drive(steering, make_row, 7) == [5, 6]
    tally = steering.close()
    assert (tally.errors, tally.invalid, tally.valid) == (2, 2, 2)
    assert tally.to_dict()["valid_share"] == pytest.approx(2 / 6)
    assert tally.to_dict()["decisions"] == 6


def test_a_reset_that_fails_is_one_error_at_the_start(make_task: Callable[..., Task]) -> None:
    class Broken(Recorder):
        def _reset(self, task: Task) -> None:
            raise FileNotFoundError("weights.bin")

    with pytest.raises(ControllerError, match=r"Broken could not be reset.*weights\.bin"):
        Steering(ThreadAsker(Broken()), make_task())


def test_a_reset_that_hangs_is_an_error(make_task: Callable[..., Task]) -> None:
    gate = threading.Event()

    class Hangs(Recorder):
        def _reset(self, task: Task) -> None:
            gate.wait(30)

    with pytest.raises(ControllerError, match="not ready after"):
        Steering(ThreadAsker(Hangs(), start_timeout_s=0.05, grace_s=0.05), make_task())
    gate.set()


def test_no_question_goes_out_after_the_last_minibatch(
    make_task: Callable[..., Task], make_row: Make
) -> None:
    steering = steer("always", make_task(total_minibatches=5), mode="sync")
    drive(steering, make_row, 5)
    tally = steering.close()
    assert (tally.asked, tally.withdrawn) == (4, 0)


def test_pulls_out_of_order_are_refused(make_task: Callable[..., Task], make_row: Make) -> None:
    steering = steer("always", make_task())
    steering.before_pull(0)
    with pytest.raises(ValueError, match="must alternate"):
        steering.before_pull(1)
    steering.close()


def test_observation_fields(make_task: Callable[..., Task], make_row: Make) -> None:
    controller = Recorder(lambda o: Decision(replace=False))
    clock = ModelClock()
    steering = Steering(InlineAsker(controller, clock, 1.5), make_task(total_minibatches=10))
    for step in range(4):
        steering.before_pull(step)
        clock.seconds += 1
        steering.after_pull(make_row(step, hits=50 + step, stale_share=step / 10))
        steering.trained(step, compute_s=0.5, stall_s=0.25)
    steering.close()
    first, second = controller.seen
    assert (first.index, first.minibatch, first.epoch, first.progress) == (0, 1, 0, 0.1)
    assert first.history == ()
    # The question goes out before the first minibatch has been trained.
    assert (first.window.compute_s, first.window.stall_s) == (0.0, 0.0)
    # Asked at 1, arrived at 2.5, applied at step 3; the second window is steps 1 to 3.
    window = second.window
    assert (second.index, second.minibatch, second.progress) == (1, 4, 0.4)
    assert (window.minibatches, window.remote_sampled) == (3, 300)
    assert window.hit_rate == pytest.approx((51 + 52 + 53) / 300)
    assert window.hit_rate_change == pytest.approx(0.52 - 0.50)
    assert window.fetched == 49 + 48 + 47
    assert window.bytes_fetched == window.fetched * 100
    assert window.communication_change == pytest.approx((48 - 50) / 50)
    assert window.stale_share == 0.3
    assert window.sample_s == pytest.approx(0.03)
    assert window.fetch_s == pytest.approx(0.06)
    # Steps 0 to 2 were trained between the two questions.
    assert (window.compute_s, window.stall_s) == pytest.approx((1.5, 0.75))
    assert [p.minibatch for p in second.history] == [3]


@pytest.mark.parametrize(("predicted", "passed"), [("increase", 1.0), ("stagnant", 0.0)])
def test_pass_at_1_by_hand(
    predicted: Effect, passed: float, make_task: Callable[..., Task], make_row: Make
) -> None:
    def answer(observation: Observation) -> Decision:
        first = observation.index == 1
        return Decision(replace=first, expected_hits=predicted if first else None)

    steering = Steering(ThreadAsker(Recorder(answer)), make_task(), mode="sync")
    for step in range(6):
        turn = steering.before_pull(step)
        replaced = 10 if turn.decision is not None and turn.decision.replace else 0
        # Applied at step 2: hits go from 50 to 70 of 100.
        steering.after_pull(make_row(step, hits=50 if step < 2 else 70, replaced=replaced))
    summary = steering.close().to_dict()
    assert summary["predictions"] == 1
    assert summary["predictions_unsettled"] == 0
    assert summary["pass_at_1"] == passed


def test_without_predictions_pass_at_1_is_null(
    make_task: Callable[..., Task], make_row: Make
) -> None:
    steering = steer("always", make_task(), mode="sync")
    drive(steering, make_row, 5)
    summary = steering.close().to_dict()
    assert summary["pass_at_1"] is None
    assert summary["replacements"] == 4
    assert summary["replacement_interval_mean"] == 1.0


def test_replacement_intervals(make_task: Callable[..., Task], make_row: Make) -> None:
    steering = steer("fixed:interval=7", make_task(), mode="sync")
    drive(steering, make_row, 30)
    tally = steering.close()
    assert tally.intervals == {7: 3}
    assert tally.to_dict()["replacement_interval_p50"] == 7.0


def test_deadline_comes_from_the_spec(make_task: Callable[..., Task]) -> None:
    steering = steer("always:deadline_s=0.25", make_task())
    assert steering._deadline_s == 0.25
    steering.close()
    assert build_controller(Spec.parse("fixed:interval=3,latency_s=1")).interval == 3  # type: ignore[attr-defined]


def _until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.perf_counter() + seconds
    while not condition():
        assert time.perf_counter() < deadline, "did not happen in time"
        time.sleep(0.002)
