"""Jobs started and stopped again and again by one process: nothing grows."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from rudder.distdgl.engine import DistDGLEngine
from rudder.engine import RunOptions
from rudder.home import Home
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec

from ..conftest import Traces

pytestmark = [pytest.mark.cluster, pytest.mark.full]

CYCLES = 200
SETTLED = 10
"""Cycles after which all that is made once has been made."""
INTERRUPTED = 5
"""Every so many cycles the user interrupts training."""
RESIDENT_MB = 40.0
"""What the process may hold more after the last cycle than when it had settled."""


@dataclass(frozen=True)
class Held:
    """What is there between two jobs."""

    processes: int
    namespaces: int
    """Mounted ones; others end with their processes."""
    descriptors: int
    threads: int
    shared_memory: frozenset[str]
    temporary: frozenset[str]

    @classmethod
    def now(cls, traces: Traces) -> Held:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return cls(
            processes=len(traces.pids()),
            namespaces=sum(" - nsfs " in line for line in mounts),
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=threading.active_count(),
            shared_memory=frozenset(os.listdir("/dev/shm")),
            temporary=frozenset(os.listdir(tempfile.gettempdir())),
        )


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def job(home: Home, number: int, interrupt: bool) -> RunResult | None:
    def progress(phase: str, share: float) -> None:
        if interrupt and phase == "train" and share > 0:
            raise KeyboardInterrupt

    scenario = Scenario.make(
        graph="sbm:nodes=1000", parts=2, epochs=2, fan_out=(3, 3), batch_size=50, seed=number
    )
    options = RunOptions(home, home.runs / f"cycle-{number}", progress=progress)
    try:
        return DistDGLEngine().run(scenario, Spec.parse("always"), options)
    except KeyboardInterrupt:
        return None


@pytest.fixture
def own_temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Temporary files of this test's processes alone; the path is short, sockets lie there."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.mark.usefixtures("own_temporary")
def test_nothing_grows(home: Home, traces: Traces, capsys: pytest.CaptureFixture[str]) -> None:
    settled, resident = Held.now(traces), 0.0
    ended = interrupted = 0
    for number in range(CYCLES):
        interrupt = number % INTERRUPTED == INTERRUPTED - 1
        result = job(home, number, interrupt)
        if result is None:
            assert interrupt
            interrupted += 1
        else:
            assert result.summary["remote_sampled"] > 0
            ended += 1
        if number == SETTLED - 1:
            settled, resident = Held.now(traces), resident_mb()
        elif number >= SETTLED:
            assert asdict(Held.now(traces)) == asdict(settled), f"after cycle {number}"
        if number % 20 == 19:
            with capsys.disabled():
                print(f"\n{number + 1} of {CYCLES}: {resident_mb():.0f} MB", flush=True)
    assert ended == CYCLES - CYCLES // INTERRUPTED
    assert interrupted == CYCLES // INTERRUPTED
    assert resident_mb() - resident < RESIDENT_MB
