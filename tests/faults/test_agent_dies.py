"""The process dies that answers for all trainers of a host (an LLM agent's, for one)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from .conftest import IN_TIME, SOME, THRICE, Train, Training

pytestmark = [pytest.mark.cluster, pytest.mark.full]

PLUGIN = '''
"""Answers from a process of its own, which takes a while to load."""
import time

from rudder import Capabilities, Controller, Decision
from rudder.registries import CONTROLLERS


class Slow(Controller):
    tags = Capabilities(own_process=True, shared=True, deadline_s=20.0)

    def __init__(self, load_s=0.0):
        self.load_s = load_s

    def _load(self, progress):
        time.sleep(self.load_s)
        return "weights"

    def _adopt(self, loaded):
        self.loaded = loaded

    def _decide(self, observation):
        return Decision(True, explanation=self.loaded)


CONTROLLERS.register("test-slow", Slow, summary="for tests")
'''


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "slow.py"
    path.write_text(PLUGIN)
    return path


def agent(training: Training) -> list[int]:
    found = []
    for pid in training.traces.pids():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"rudder.steering.serving" in words:
            found.append(int(pid))
    return found


@THRICE
def test_it_dies_before_it_has_loaded(train: Train, plugin: Path, repeat: int) -> None:
    training = train("--plugin", str(plugin), "--controller", "test-slow:load_s=60")
    training.until(lambda: len(agent(training)) == 1)
    os.kill(agent(training)[0], signal.SIGKILL)
    told = training.ends(IN_TIME)
    assert told["error"] == "ControllerError"
    assert "the process of test-slow" in told["message"]
    assert "died while loading, exit status -9" in told["message"]


@THRICE
def test_it_dies_in_the_middle(train: Train, plugin: Path, repeat: int) -> None:
    training = train("--plugin", str(plugin), "--controller", "test-slow", epochs=SOME)
    training.wait_for("mid-epoch")
    [pid] = agent(training)
    os.kill(pid, signal.SIGKILL)
    told = training.goes_on()
    assert told["valid_share"] < 1.0
    service = training.result().details["service"]
    assert (service["deaths"], service["restarts"]) == (1, 1)
