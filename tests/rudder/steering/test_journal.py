"""decisions.jsonl: whole after a crash, folded when read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rudder import Task
from rudder.errors import ResultError
from rudder.result import MinibatchRow
from rudder.steering import read_decisions, steer

Make = Callable[..., MinibatchRow]


def record(path: Path, task: Task, make_row: Make, minibatches: int = 12) -> None:
    steering = steer("fixed:interval=4", task, mode="sync", decisions_path=path)
    for step in range(minibatches):
        turn = steering.before_pull(step)
        replace = turn.decision is not None and turn.decision.replace
        steering.after_pull(make_row(step, replaced=5 if replace else 0))
    steering.close()


def test_records(tmp_path: Path, make_task: Callable[..., Task], make_row: Make) -> None:
    path = tmp_path / "deep" / "decisions.jsonl"
    record(path, make_task(rank=2, total_minibatches=12), make_row)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["kind"] == "task"
    assert lines[0]["facts"]["graph"] == "tiny"
    decisions = read_decisions(path)
    assert [d["question"] for d in decisions] == list(range(11))
    assert [d["asked_at"] for d in decisions] == list(range(1, 12))
    assert [d["applied_at"] for d in decisions] == list(range(1, 12))
    assert [d["applied_at"] for d in decisions if d["decision"]["replace"]] == [3, 7, 11]
    assert {d["rank"] for d in decisions} == {2}
    assert {d["outcome"] for d in decisions} == {"valid"}
    assert all(d["answer_s"] >= d["decision"]["latency_s"] > 0 for d in decisions)
    assert decisions[4]["observation"]["window"]["remote_sampled"] == 100
    assert "facts" not in decisions[4]["observation"]
    # Applied at step 3, three minibatches before it, settled by the replacement at 7 or sooner.
    effect = decisions[2]["effect"]
    assert (effect["minibatch"], effect["window"], effect["settled_at"]) == (3, 3, 6)
    assert effect["replaced"] == 5
    assert decisions[-1]["effect"]["window"] == 1


CRASH = """
import os, sys, time
from pathlib import Path
from rudder import Facts, Task
from rudder.result import MinibatchRow
from rudder.steering import steer

facts = Facts("tiny", 9, 9, 4, 2, 5, 3, 4, 1, (2,), 2, 1, 1, 100, "score")
steering = steer("always", Task(facts, 0, 0), mode="sync", decisions_path=Path(sys.argv[1]))
for step in range(50):
    steering.before_pull(step)
    steering.after_pull(MinibatchRow(0, 0, step, 1, 1, 10, 5, 5, 0, 5, 0.0, 1.0))
while steering._journal._queue.qsize():
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


def test_readable_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    done = subprocess.run([sys.executable, "-I", "-c", CRASH, str(path)], check=False)
    assert done.returncode == -9
    # The one record in the writer's hands may be lost; the others were flushed.
    assert len(read_decisions(path)) >= 48


def test_a_torn_last_line_is_left_out_and_any_other_damage_is_told(
    tmp_path: Path, make_task: Callable[..., Task], make_row: Make
) -> None:
    path = tmp_path / "decisions.jsonl"
    record(path, make_task(), make_row)
    whole = path.read_text()
    count = len(read_decisions(path))
    path.write_text(whole + '{"kind":"decision","ra')
    assert len(read_decisions(path)) == count
    path.write_text(whole.replace("\n", "\nnonsense\n", 1))
    with pytest.raises(ResultError, match=r"decisions\.jsonl:2 "):
        read_decisions(path)
    path.write_text(whole.replace('"schema_version":1', '"schema_version":99'))
    with pytest.raises(ResultError, match="schema version 99"):
        read_decisions(path)
    with pytest.raises(ResultError, match="cannot be read"):
        read_decisions(tmp_path / "missing")


def test_a_full_disk_is_an_error_at_close_not_in_training(
    make_task: Callable[..., Task], make_row: Make
) -> None:
    # Every write to /dev/full fails with ENOSPC.
    steering = steer("always", make_task(), mode="sync", decisions_path=Path("/dev/full"))
    for step in range(20):
        steering.before_pull(step)
        steering.after_pull(make_row(step))
    with pytest.raises(ResultError, match=r"/dev/full is incomplete: No space left"):
        steering.close()


def test_a_journal_that_cannot_be_made_is_an_error_at_once(
    tmp_path: Path, make_task: Callable[..., Task]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match="cannot be written"):
        steer("always", make_task(), decisions_path=tmp_path / "file" / "decisions.jsonl")
