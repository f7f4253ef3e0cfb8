"""Whatever latencies and pull times are: the rules of the clock hold."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rudder import Controller, Decision, Observation, Task
from rudder.result import MinibatchRow
from rudder.steering import InlineAsker, Steering, read_decisions

SECONDS = st.floats(0.0, 8.0, allow_nan=False)


class Keeper(Controller):
    """Remembers what it saw; replaces every second time."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []

    def _decide(self, observation: Observation) -> Decision:
        self.seen.append(observation)
        return Decision(replace=observation.index % 2 == 0)


class Varying(InlineAsker):
    """An asker whose answers take a given number of seconds each."""

    def __init__(self, controller: Controller, clock: Callable[[], float], each: list[float]):
        super().__init__(controller, clock)
        self._each = each

    def ask(self, observation: Observation) -> None:
        self._latency_s = self._each[observation.index % len(self._each)]
        super().ask(observation)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    latencies=st.lists(SECONDS, min_size=1, max_size=6),
    pulls=st.lists(SECONDS, min_size=2, max_size=40),
    mode=st.sampled_from(["async", "sync"]),
    deadline_s=st.floats(0.5, 6.0),
)
def test_rules_of_the_clock(
    latencies: list[float],
    pulls: list[float],
    mode: Literal["async", "sync"],
    deadline_s: float,
    make_task: Callable[..., Task],
    make_row: Callable[..., MinibatchRow],
) -> None:
    seconds = 0.0
    controller = Keeper()
    planned: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decisions.jsonl"
        steering = Steering(
            Varying(controller, lambda: seconds, latencies),
            make_task(total_minibatches=len(pulls)),
            mode=mode,
            deadline_s=deadline_s,
            decisions_path=path,
        )
        returned: list[float] = []
        for step, pull in enumerate(pulls):
            turn = steering.before_pull(step)
            assert turn.waited_s <= deadline_s
            assert mode == "sync" or turn.waited_s == 0.0
            seconds += turn.waited_s
            planned.append(seconds)
            seconds += pull
            replaced = 1 if turn.decision is not None and turn.decision.replace else 0
            steering.after_pull(make_row(step, replaced=replaced))
            returned.append(seconds)
        tally = steering.close()
        records = read_decisions(path)

    # Windows follow one another without gap or overlap.
    ends = [o.minibatch for o in controller.seen]
    assert [o.window.minibatches for o in controller.seen] == [
        end - start for start, end in zip([0, *ends], ends, strict=False)
    ]
    # One question at a time: the next goes out after the pull that closed the one before.
    assert ends == sorted(set(ends))
    assert tally.asked + tally.withdrawn == len(controller.seen)
    assert tally.asked == len(records)
    for record in records:
        asked = returned[record["asked_at"] - 1]
        if record["outcome"] == "valid":
            assert record["answer_s"] <= deadline_s
            arrived = asked + record["answer_s"]
            at = record["applied_at"]
            if at is None:
                # It arrived when no pull was left.
                assert mode == "async"
                continue
            assert at >= record["asked_at"]
            assert planned[at] >= arrived - 1e-9
            if mode == "sync":
                assert at == record["asked_at"]
            else:
                # No earlier pull was planned after it arrived.
                assert all(planned[s] < arrived + 1e-9 for s in range(record["asked_at"], at))
        else:
            assert record["outcome"] == "timeout"
            assert record["applied_at"] is None
