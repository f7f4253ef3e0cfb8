"""Real training runs to which something is done at a given moment."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rudder.result import RunResult

from ..conftest import Traces

HERE = Path(__file__).parent
_MAIN = "import sys; from rudder.cli.app import main; sys.exit(main())"
FOR_EVER = 500
"""Epochs of a run that the fault must end: it would train for minutes."""
SOME = 60
"""Epochs of a run that must outlast the fault."""
FILLER = "filler"
"""A file that takes all the room."""
IN_TIME = 15.0
"""Seconds from a death to the end of the run."""

MOMENTS = pytest.mark.parametrize("moment", ["start-up", "mid-epoch"])
THRICE = pytest.mark.parametrize("repeat", range(3))


class Training:
    """``rudder train`` on two emulated hosts, in a process of its own."""

    def __init__(
        self,
        home: Path,
        traces: Traces,
        *options: str,
        epochs: int = FOR_EVER,
        track: bool = False,
        before: Sequence[str] = (sys.executable, "-I", "-c", _MAIN),
    ) -> None:
        self.traces = traces
        self.runs = home / "runs"
        """Where the runs' directories are seen from here."""
        self.said = ""
        """Its stderr, once it has ended by an error."""
        self._earlier = {path.name for path in home.glob("runs/*")}
        self._run_dir: Path | None = None
        arguments = ["train", "sbm:nodes=6000", "--parts", "2", "--epochs", str(epochs), "--json"]
        arguments += ["--home", str(home), *([] if track else ["--no-track"]), *options]
        self.process = subprocess.Popen(
            [*before, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, traces.VARIABLE: traces.mark},
        )

    # When.

    def wait_for(self, moment: str) -> None:
        """ "start-up": every role has begun; "mid-epoch": every trainer trains, for a while."""
        if moment == "start-up":
            self.until(lambda: all(len(self.roles(host)) == 2 for host in ("host0", "host1")))
        else:
            self.until(lambda: all(n > 5 for n in self.reported()))
        time.sleep(random.random())  # a moment that no code has chosen

    def wait_for_hosts(self) -> None:
        self.until(lambda: set(self.first_processes()) == {"world", "host0", "host1"})

    def until(self, done: Callable[[], bool], seconds: float = 180.0) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, "not in time"
            time.sleep(0.1)

    # Who and where.

    def first_processes(self) -> dict[str, int]:
        """Pids of the first processes of the world and of the hosts, which it starts in order."""
        found = []
        for pid in self.traces.pids():
            levels = _namespace_pids(pid)
            if len(levels) > 1 and levels[-1] == "1":
                found.append((len(levels), pid))
        return dict(zip(("world", "host0", "host1"), (p for _, p in sorted(found)), strict=False))

    def everybody(self, host: str) -> list[int]:
        """All processes on a host, its first one included."""
        home = _namespace(self.first_processes().get(host, 0))
        return [p for p in self.traces.pids() if home is not None and _namespace(p) == home]

    def roles(self, host: str) -> list[int]:
        """The server and the trainer on a host, in this order."""
        first = self.first_processes().get(host)
        inside = [pid for pid in self.everybody(host) if pid != first]
        return sorted(pid for pid in inside if _parent(pid) not in inside)

    def run_dir(self) -> Path | None:
        """None before it is made; it stays, when other runs begin."""
        if self._run_dir is None:
            new = {path.name for path in self.runs.glob("*")} - self._earlier - {FILLER}
            self._run_dir = self.runs / new.pop() if new else None
        return self._run_dir

    # What has been said.

    def reported(self) -> list[int]:
        """Decisions that each rank has put down so far; each line must be whole."""
        run_dir = self.run_dir()
        if run_dir is None:
            return [0, 0]
        journals = sorted(run_dir.glob("ranks/decisions-rank=*.jsonl"))
        return [len(_whole_lines(j)) for j in journals] if len(journals) == 2 else [0, 0]

    # How it ends.

    def ends(self, seconds: float) -> dict[str, Any]:
        """The error with which it ends in time; it leaves nothing, and no decision is lost."""
        namespaces, reported = self.traces.namespaces(), self.reported()
        start = time.monotonic()
        out, err = self.process.communicate(timeout=seconds)
        self.said = err
        assert self.process.returncode == 1, err
        assert out == ""
        self.traces.assert_gone(namespaces, max(1.0, seconds - (time.monotonic() - start)))
        assert all(now >= then for now, then in zip(self.reported(), reported, strict=True))
        told: dict[str, Any] = json.loads(err.strip().splitlines()[-1])
        return told

    def goes_on(self, seconds: float = 600.0) -> dict[str, Any]:
        """What it tells when it has trained to its end: every minibatch is there."""
        out, err = self.process.communicate(timeout=seconds)
        assert self.process.returncode == 0, err
        self.traces.assert_gone()
        told: dict[str, Any] = json.loads(out)
        assert told["test_metric"] > 0.5
        return told

    def result(self) -> RunResult:
        run_dir = self.run_dir()
        assert run_dir is not None
        return RunResult.load(run_dir)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def _whole_lines(journal: Path) -> list[Any]:
    text = journal.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _namespace_pids(pid: int) -> list[str]:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except (FileNotFoundError, ProcessLookupError):
        return None


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def inside(pid: int, *order: str) -> None:
    """Have something done in the namespaces of a process: see ``inside.py``."""
    subprocess.run(
        [sys.executable, "-I", str(HERE / "inside.py"), str(pid), *order], check=True, timeout=30
    )


@pytest.fixture(scope="session")
def fault_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose partitions all runs share."""
    return tmp_path_factory.mktemp("faults")


Train = Callable[..., Training]


@pytest.fixture
def train(fault_home: Path, traces: Traces) -> Iterator[Train]:
    started: list[Training] = []

    def run(
        *options: str, home: Path = fault_home, traces: Traces = traces, **more: Any
    ) -> Training:
        started.append(Training(home, traces, *options, **more))
        return started[-1]

    yield run
    for training in started:
        training.close()
        training.traces.assert_gone()
