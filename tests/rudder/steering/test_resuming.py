"""A decision loop that goes on in another process decides as the one that it goes on from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rudder import Controller, Decision, Observation, Task
from rudder.decision import Effect
from rudder.result import MinibatchRow
from rudder.steering import Earlier, InlineAsker, Steering, Tally

from .conftest import MakeRow, MakeTask

MINIBATCHES = 60


@dataclass
class Learning(Controller):
    """Answers by all that it was ever shown, which no later observation tells."""

    known: int = 0
    answered: list[int] = field(default_factory=list)

    def _reset(self, task: Task) -> None:
        self.known = 0

    def _decide(self, observation: Observation) -> Decision:
        self.known += observation.window.fetched + 7 * len(observation.history)
        self.answered.append(observation.index)
        if self.known % 5 == 4:
            raise RuntimeError("no answer this time")
        effect: Effect = "stagnant" if self.known % 2 else "decrease"
        return Decision(self.known % 3 == 0, expected_communication=effect)


def run(
    steering: Steering, rows: list[MinibatchRow], until: int, make_row: MakeRow
) -> list[MinibatchRow]:
    """Minibatches whose counts depend on what was decided."""
    for step in range(len(rows), until):
        turn = steering.before_pull(step)
        replaced = 3 if turn.decision is not None and turn.decision.replace else 0
        hits = 40 + (step * 7) % 13 + (step * replaced) % 5
        rows.append(make_row(step, hits=hits, replaced=replaced))
        steering.after_pull(rows[-1])
        steering.trained(step, 0.01 * step, 0.001)
    return rows


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("cut", [1, 2, 8, 9, 31, 59])
def test_it_asks_decides_and_counts_as_without_the_break(
    cut: int, mode: Any, tmp_path: Path, make_row: MakeRow, make_task: MakeTask
) -> None:
    task = make_task(total_minibatches=MINIBATCHES)

    def start(path: Path, earlier: Earlier | None = None) -> Steering:
        asker = InlineAsker(Learning(), lambda: 0.0)
        return Steering(asker, task, mode=mode, decisions_path=path, earlier=earlier)

    whole = start(tmp_path / "whole.jsonl")
    expected_rows = run(whole, [], MINIBATCHES, make_row)
    expected = whole.close()

    first = start(tmp_path / "broken.jsonl")
    rows = run(first, [], cut, make_row)
    state = json.loads(json.dumps(first.to_state()))
    journal = (tmp_path / "broken.jsonl").read_bytes()
    assert len(journal) == state["journal"]
    run(first, list(rows), min(cut + 5, MINIBATCHES), make_row)  # the tail that is lost
    first.close()

    second = start(tmp_path / "broken.jsonl", Earlier(list(rows), journal, state))
    assert run(second, rows, MINIBATCHES, make_row) == expected_rows
    tally = second.close()
    assert plain(tally) == plain(expected)
    assert records(tmp_path / "broken.jsonl") == records(tmp_path / "whole.jsonl")


def plain(tally: Tally) -> dict[str, Any]:
    """Without seconds."""
    return {**tally.to_state(), "latencies_s": len(tally.latencies_s)}


def records(path: Path) -> list[dict[str, Any]]:
    """Every line, without what the wall clock says."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for record in found:
        record.pop("at", None)
    return found


def test_an_agent_is_not_asked_again(
    tmp_path: Path, make_row: MakeRow, make_task: MakeTask
) -> None:
    task, path = make_task(total_minibatches=MINIBATCHES), tmp_path / "decisions.jsonl"
    first = Steering(InlineAsker(Learning(), lambda: 0.0), task, decisions_path=path)
    rows = run(first, [], 20, make_row)
    state = first.to_state()  # by now the file is whole
    earlier = Earlier(rows, path.read_bytes(), state)
    first.close()
    for again, answered in ((True, list(range(20))), (False, [19])):
        controller = Learning()
        second = Steering(
            InlineAsker(controller, lambda: 0.0), task, decisions_path=path, earlier=earlier,
            ask_again=again,
        )  # fmt: skip
        assert controller.answered == answered  # the last one is open: it is asked in any case
        second.close()
