"""A real training run in which a trainer, a server or the launcher is killed at a random moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

IN_TIME = 15.0
"""Seconds from a kill to the end of the job."""
_MAIN = "import sys; from rudder.cli.app import main; sys.exit(main())"


class Training:
    """``rudder train`` in a process of its own, on a graph that would train for minutes."""

    def __init__(self, home: Path, traces: Any) -> None:
        self.home, self.traces = home, traces
        arguments = ["train", "sbm:nodes=6000", "--parts", "2", "--epochs", "500"]
        arguments += ["--no-track", "--json", "--home"]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", _MAIN, *arguments, str(home)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, traces.VARIABLE: traces.mark},
        )

    def wait_until_training(self, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            journals = list(self.home.glob("runs/*/ranks/decisions-rank=*.jsonl"))
            if len(journals) == 2 and all(j.read_text().count("\n") > 5 for j in journals):
                return
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.1)
        raise AssertionError("training did not start in time")

    def trainer(self, rank: int) -> int:
        """Its pid: who holds its journal open."""
        for pid in self.traces.pids():
            if any(f.endswith(f"decisions-rank={rank}.jsonl") for f in _open_files(pid)):
                return int(pid)
        raise AssertionError(f"no process has the journal of rank {rank} open")

    def server(self, host: int) -> int:
        """Its pid: the other process on the trainer's host that is not the host's first."""
        trainer = self.trainer(host)
        network = os.readlink(f"/proc/{trainer}/ns/net")
        for pid in self.traces.pids():
            if pid == trainer or os.readlink(f"/proc/{pid}/ns/net") != network:
                continue
            status = Path(f"/proc/{pid}/status").read_text()
            inner = next(s for s in status.splitlines() if s.startswith("NSpid:")).split()[-1]
            if inner != "1":
                return int(pid)
        raise AssertionError(f"no server on host {host}")


def _open_files(pid: int) -> list[str]:
    try:
        return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except (FileNotFoundError, ProcessLookupError):
        return []


@pytest.fixture
def training(tmp_path: Path, traces: Any) -> Iterator[Training]:
    started = Training(tmp_path / "home", traces)
    started.wait_until_training()
    time.sleep(random.random())  # a moment that no code has chosen
    yield started
    started.process.kill()
    started.process.communicate()


@pytest.mark.parametrize("victim", ["trainer", "server"])
def test_a_killed_role_ends_the_job_and_is_named(training: Training, victim: str) -> None:
    pid = training.trainer(1) if victim == "trainer" else training.server(1)
    namespaces = training.traces.namespaces()
    os.kill(pid, signal.SIGKILL)
    start = time.monotonic()
    out, err = training.process.communicate(timeout=IN_TIME)
    assert training.process.returncode == 1
    assert out == ""
    told = json.loads(err.strip().splitlines()[-1])
    assert told["error"] == "RoleError"
    assert f"{victim} 1 on host1" in told["message"]
    assert "SIGKILL" in told["message"]
    training.traces.assert_gone(namespaces, IN_TIME - (time.monotonic() - start))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_launcher_leaves_nothing(training: Training, number: int) -> None:
    namespaces = training.traces.namespaces()
    training.process.send_signal(number)
    start = time.monotonic()
    training.process.communicate(timeout=IN_TIME)
    assert training.process.returncode != 0
    training.traces.assert_gone(namespaces, IN_TIME - (time.monotonic() - start))
