"""Fixtures for emulated hosts, and a look at what a test leaves behind."""

from __future__ import annotations

import importlib
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _importable_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hosts import ``cluster_roles``: they import from where their launcher does."""
    monkeypatch.syspath_prepend(str(HERE))


class Traces:
    """Processes that a test has started, directly or not, told by a variable they inherit."""

    VARIABLE = "RUDDER_TEST_MARK"

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex

    def pids(self) -> list[int]:
        """Of all marked processes except this one."""
        needle = f"{self.VARIABLE}={self.mark}".encode()
        found = []
        for pid in _all_pids():
            try:
                if needle in Path(f"/proc/{pid}/environ").read_bytes() and pid != os.getpid():
                    found.append(pid)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return sorted(found)

    def namespaces(self) -> Namespaces:
        """Network, mount, pid and user namespaces of the marked processes, without this one's."""
        names = _namespaces(self.pids()) - _namespaces([os.getpid()])
        return Namespaces(frozenset(names), time.clock_gettime(time.CLOCK_BOOTTIME))

    def assert_gone(self, namespaces: Namespaces | None = None, seconds: float = 5.0) -> None:
        """No marked process is left, and nobody is in those namespaces any more."""
        users = namespaces.users if namespaces is not None else list
        deadline = time.monotonic() + seconds
        while (self.pids() or users()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.pids() == []
        assert users() == []


@dataclass(frozen=True)
class Namespaces:
    """Names of namespaces as seen at a time (seconds since boot)."""

    names: frozenset[str]
    seen: float

    def users(self) -> list[int]:
        """Processes in them that are as old; younger ones are others' under a name used again."""
        return [p for p in _all_pids() if self.names & _namespaces([p]) and _born(p) <= self.seen]


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _born(pid: int) -> float:
    """Seconds since boot; infinite if it has ended meanwhile."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return float("inf")
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _namespaces(pids: Iterable[int]) -> set[str]:
    found = set()
    for pid in pids:
        for kind in ("net", "mnt", "pid", "user"):
            try:
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
    return found


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    """The test must leave no process behind that it has started through an environment."""
    made = Traces()
    monkeypatch.setenv(made.VARIABLE, made.mark)
    yield made
    made.assert_gone()


@pytest.fixture(scope="session")
def sshd() -> ModuleType:
    """Emulated hosts with a real sshd each: the module ``sshd_hosts``."""
    return _helper("sshd_hosts")


@pytest.fixture(scope="session")
def slurm() -> ModuleType:
    """Emulated hosts of a real Slurm: the module ``slurm_hosts``."""
    return _helper("slurm_hosts")


@pytest.fixture(scope="session")
def emulated() -> ModuleType:
    """Commands on emulated hosts: the module ``emulated``."""
    return _helper("emulated")


def _helper(name: str) -> ModuleType:
    """A module beside this file; what it needs of the system must be there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        module = importlib.import_module(name)
    missing = [path for path in getattr(module, "NEEDED", ()) if not Path(path).exists()]
    assert not missing, f"this test needs {', '.join(missing)}: {module.INSTALL}"
    return module
