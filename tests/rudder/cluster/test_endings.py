"""Whatever ends a job or its launcher, nothing is left: no process, namespace, shared memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

DRIVER = Path(__file__).parent / "driver.py"
IN_TIME = 15.0
"""The budget for everything from a kill to the end of the job, seconds."""


class Launcher:
    """The driver in a process of its own, stopped at the point where all its roles are up."""

    def __init__(self, logs: Path, traces: Any, preload: str, ending: str) -> None:
        self.traces = traces
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(DRIVER), str(logs), preload, ending],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n", self.process.communicate()[1]
        self.namespaces = traces.namespaces()
        self.start = time.monotonic()

    def end(self, seconds: float = IN_TIME) -> str:
        """Wait for the launcher and check that nothing is left; what it said at last."""
        _, errors = self.process.communicate(timeout=seconds)
        left = seconds - (time.monotonic() - self.start)
        self.traces.assert_gone(self.namespaces, left)
        return errors

    def first_processes(self) -> dict[str, int]:
        """Pids of the first processes of the world and of the hosts, which it starts in order."""
        found = []
        for pid in self.traces.pids():
            status = Path(f"/proc/{pid}/status").read_text()
            levels = next(s for s in status.splitlines() if s.startswith("NSpid:")).split()[1:]
            if len(levels) > 1 and levels[-1] == "1":
                found.append((len(levels), pid))
        names = ("world", "host0", "host1")
        return {name: pid for name, (_, pid) in zip(names, sorted(found), strict=True)}


@pytest.fixture
def launch(tmp_path: Path, traces: Any) -> Iterator[Any]:
    launched: list[Launcher] = []

    def start(preload: str = "json", ending: str = "") -> Launcher:
        launched.append(Launcher(tmp_path, traces, preload, ending))
        return launched[-1]

    yield start
    for launcher in launched:
        launcher.process.kill()
        launcher.process.communicate()


@pytest.mark.parametrize(
    ("preload", "number", "status"),
    [
        ("json", signal.SIGINT, -signal.SIGINT),
        ("json", signal.SIGTERM, 143),
        ("json", signal.SIGHUP, -signal.SIGHUP),
        ("json", signal.SIGKILL, -signal.SIGKILL),
        ("", signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_a_signal_to_the_launcher_leaves_nothing(
    launch: Any, preload: str, number: int, status: int
) -> None:
    launcher = launch(preload)
    assert len(launcher.traces.pids()) >= 13  # itself, 4 or 5 of the cluster, 4 roles, 4 children
    launcher.process.send_signal(number)
    launcher.end()
    assert launcher.process.returncode == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_no_job_runs_leaves_nothing(launch: Any, number: int) -> None:
    launcher = launch(ending="outside")
    launcher.process.send_signal(number)
    launcher.end()
    assert launcher.process.returncode == -number


def test_an_exception_in_the_launcher_leaves_nothing(launch: Any) -> None:
    assert "RuntimeError: the launcher's own fault" in launch(ending="exception").end()


@pytest.mark.parametrize("role", ["server-0", "trainer-1"])
def test_killing_a_role_ends_the_job_and_names_it(launch: Any, role: str) -> None:
    launcher = launch()
    kind, host = role.split("-")
    os.kill(_role(launcher, f"host{host}", kind), signal.SIGKILL)
    errors = launcher.end()
    assert f"RoleError: {kind} {host} on host{host} (10.91.0.{int(host) + 1}) was killed" in errors
    assert launcher.process.returncode == 1


def test_the_death_of_a_host_is_named_as_such(launch: Any) -> None:
    launcher = launch()
    os.kill(launcher.first_processes()["host1"], signal.SIGKILL)
    errors = launcher.end()
    assert "ClusterError: host1 (10.91.0.2) died: its first process was killed by SIGKILL" in errors
    assert "server 1 on host1" in errors
    assert "trainer 0" not in errors


def test_the_death_of_the_world_is_noticed(launch: Any) -> None:
    launcher = launch()
    os.kill(launcher.first_processes()["world"], signal.SIGKILL)
    assert "the process that holds the emulated hosts ended" in launcher.end()


def _role(launcher: Launcher, host: str, kind: str) -> int:
    """Pid of a role: the marked processes of its host, apart from the first, in order of start."""
    first = launcher.first_processes()[host]
    home = os.readlink(f"/proc/{first}/ns/pid")
    inside = [
        pid
        for pid in launcher.traces.pids()
        if pid != first and os.readlink(f"/proc/{pid}/ns/pid") == home
    ]
    leaders = [pid for pid in inside if _parent(pid) not in inside]
    return sorted(leaders)[0 if kind == "server" else 1]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
