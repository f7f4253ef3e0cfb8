"""Controllers in a process of their own: answers, death, hanging, the end of the trainer."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rudder import Decision, Spec, Task
from rudder.errors import ControllerError
from rudder.plugins import PluginFile, load_file
from rudder.result import MinibatchRow
from rudder.steering import ProcessController, Steering, ThreadAsker, read_decisions, steer
from rudder.steering.protocol import OUT_OF_MEMORY

Make = Callable[..., MinibatchRow]

PLUGIN = '''
"""A controller that wants a process of its own and can be told to misbehave."""
import os
import time

from rudder import Capabilities, Controller, Decision
from rudder.registries import CONTROLLERS


class Apart(Controller):
    tags = Capabilities(own_process=True, deadline_s=20.0)

    def __init__(self, die_at=-1, hang_at=-1, full_at=-1, fail_reset=False, chatty=False):
        self.die_at, self.hang_at, self.fail_reset = die_at, hang_at, fail_reset
        self.full_at = full_at
        self.chatty = chatty

    def _reset(self, task):
        if self.fail_reset:
            raise FileNotFoundError("weights.bin")
        self.seed = task.seed

    def _decide(self, observation):
        if self.chatty:
            print("libraries print")
        if observation.minibatch == self.die_at:
            os._exit(7)
        if observation.minibatch == self.hang_at:
            time.sleep(60)
        if observation.minibatch == self.full_at:
            raise MemoryError
        return Decision(True, explanation=f"{os.getpid()} {self.seed} {len(observation.history)}")


CONTROLLERS.register("test-apart", Apart, summary="for tests", params={"die_at": -1})
'''


@pytest.fixture
def plugin(tmp_path: Path) -> PluginFile:
    path = tmp_path / "apart.py"
    path.write_text(PLUGIN)
    return load_file(path)


def drive(steering: Steering, make_row: Make, minibatches: int) -> list[Decision | None]:
    decisions = []
    for step in range(minibatches):
        decisions.append(steering.before_pull(step).decision)
        steering.after_pull(make_row(step))
    return decisions


def test_it_answers_from_another_process(
    plugin: PluginFile, make_task: Callable[..., Task], make_row: Make
) -> None:
    steering = steer("test-apart:chatty=true", make_task(seed=42), mode="sync", plugins=[plugin])
    decisions = drive(steering, make_row, 12)
    words = [d.explanation.split() for d in decisions[1:] if d is not None]
    assert len(words) == 11
    pids = {int(pid) for pid, _, _ in words}
    assert len(pids) == 1
    assert os.getpid() not in pids
    assert {seed for _, seed, _ in words} == {"42"}
    assert [int(history) for _, _, history in words] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8]
    steering.close()
    assert _gone(pids.pop())


def test_death_is_an_error_and_the_next_question_goes_to_a_new_process(
    plugin: PluginFile, tmp_path: Path, make_task: Callable[..., Task], make_row: Make
) -> None:
    path = tmp_path / "decisions.jsonl"
    steering = steer(
        "test-apart:die_at=3",
        make_task(),
        mode="sync",
        plugins=[plugin],
        decisions_path=path,
    )
    assert [d is not None for d in drive(steering, make_row, 6)] == [
        False, True, True, False, True, True,
    ]  # fmt: skip
    tally = steering.close()
    assert (tally.errors, tally.valid) == (1, 4)
    (error,) = [d for d in read_decisions(path) if d["outcome"] == "error"]
    assert "died with exit status 7" in error["decision"]["explanation"]


def test_a_process_without_memory_says_so_and_is_replaced(
    plugin: PluginFile, tmp_path: Path, make_task: Callable[..., Task], make_row: Make
) -> None:
    path = tmp_path / "decisions.jsonl"
    controller = ProcessController(Spec("test-apart", {"full_at": 3}), [plugin])
    steering = Steering(ThreadAsker(controller), make_task(), mode="sync", decisions_path=path)
    pids = []
    for step in range(7):
        decision = steering.before_pull(step).decision
        pids.append(decision.explanation.split()[0] if decision else None)
        steering.after_pull(make_row(step))
        if step == 3:
            process = controller._process
            assert process is not None
            assert process.wait(10) == OUT_OF_MEMORY
    tally = steering.close()
    # The question after it finds the process gone; the one after that starts another.
    assert (tally.errors, tally.valid) == (2, 4)
    assert len({pid for pid in pids if pid}) == 2
    told = [d["decision"] for d in read_decisions(path) if d["outcome"] == "error"]
    assert told[0]["details"] == {"out_of_memory": True}
    assert f"exit status {OUT_OF_MEMORY}" in told[1]["explanation"]


def test_restarts_are_bounded(
    plugin: PluginFile, make_task: Callable[..., Task], make_row: Make
) -> None:
    controller = ProcessController(Spec("test-apart"), [plugin], restarts=1)
    steering = Steering(ThreadAsker(controller), make_task(), mode="sync")
    for step in range(6):
        decision = steering.before_pull(step).decision
        if decision is not None:
            pid = int(decision.explanation.split()[0])
            os.kill(pid, signal.SIGKILL)
            _until(functools.partial(_gone, pid))
        steering.after_pull(make_row(step))
    tally = steering.close()
    # Valid, killed, error, restarted: valid, killed, error; then no restart is left: errors.
    assert (tally.valid, tally.errors) == (2, 3)


def test_a_hung_process_times_out_and_is_replaced(
    plugin: PluginFile, make_task: Callable[..., Task], make_row: Make
) -> None:
    controller = ProcessController(
        Spec("test-apart", {"hang_at": 2}), [plugin], answer_timeout_s=1.7
    )
    steering = Steering(ThreadAsker(controller), make_task(), mode="sync", deadline_s=1.5)
    got = [d is not None for d in drive(steering, make_row, 3)]
    assert got == [False, True, False]
    _until(lambda: controller._process is None)
    steering.before_pull(3)
    steering.after_pull(make_row(3))
    _until(lambda: steering._asker.poll() is not None)
    summary = steering.close().to_dict()
    assert summary["timeouts"] >= 1
    assert controller._restarts_left == 1


def test_close_ends_a_process_that_hangs(
    plugin: PluginFile, make_task: Callable[..., Task], make_row: Make
) -> None:
    steering = steer("test-apart:hang_at=1", make_task(), plugins=[plugin])
    steering.before_pull(0)
    steering.after_pull(make_row(0))
    start = time.perf_counter()
    steering.close()
    assert time.perf_counter() - start < 5


def test_a_reset_that_fails_there_is_told_here(
    plugin: PluginFile, make_task: Callable[..., Task]
) -> None:
    with pytest.raises(ControllerError, match=r"FileNotFoundError: weights\.bin"):
        steer("test-apart:fail_reset=true", make_task(), plugins=[plugin])


def test_a_changed_plugin_is_refused_there(
    plugin: PluginFile, make_task: Callable[..., Task]
) -> None:
    stale = PluginFile(plugin.path, "0" * 64)
    with pytest.raises(ControllerError, match="changed since the job was made"):
        steer("test-apart", make_task(), plugins=[stale])


TRAINER = """
import sys, time
from pathlib import Path
from rudder import Facts, Task
from rudder.plugins import load_file
from rudder.result import MinibatchRow
from rudder.steering import steer

plugin = load_file(Path(sys.argv[1]))
facts = Facts("tiny", 9, 9, 4, 2, 5, 3, 4, 1, (2,), 2, 1, 1, 100, "score")
steering = steer("test-apart:hang_at=2", Task(facts, 0, 0), mode="sync", plugins=[plugin])
steering.before_pull(0)
steering.after_pull(MinibatchRow(0, 0, 0, 1, 1, 10, 5, 5, 0, 5, 0.0, 1.0))
print(steering.before_pull(1).decision.explanation, flush=True)
steering.after_pull(MinibatchRow(0, 0, 1, 1, 1, 10, 5, 5, 0, 5, 0.0, 1.0))
time.sleep(60)
"""


def test_it_ends_with_a_killed_trainer_even_while_busy(plugin: PluginFile) -> None:
    trainer = subprocess.Popen(
        [sys.executable, "-I", "-c", TRAINER, plugin.path], stdout=subprocess.PIPE, text=True
    )
    assert trainer.stdout is not None
    with trainer.stdout:
        pid = int(trainer.stdout.readline().split()[0])
        trainer.kill()
        trainer.wait()
    _until(lambda: _gone(pid), seconds=10)


def _gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def _until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.perf_counter() + seconds
    while not condition():
        assert time.perf_counter() < deadline, "did not happen in time"
        time.sleep(0.01)
