"""Fixtures for emulated hosts, and a look at what a test leaves behind."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

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
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if needle in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return sorted(found)

    def namespaces(self) -> set[str]:
        """Network, mount, pid and user namespaces of the marked processes, without this one's."""
        return _namespaces(self.pids()) - _namespaces([os.getpid()])

    def assert_gone(self, namespaces: set[str], seconds: float = 5.0) -> None:
        """No marked process is left, and nobody is in those namespaces any more."""
        deadline = time.monotonic() + seconds
        while (self.pids() or self._users(namespaces)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.pids() == []
        assert self._users(namespaces) == set()

    @staticmethod
    def _users(namespaces: set[str]) -> set[str]:
        return namespaces & _namespaces(int(p) for p in os.listdir("/proc") if p.isdigit())


def _namespaces(pids: object) -> set[str]:
    found = set()
    for pid in pids:  # type: ignore[attr-defined]
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
    made.assert_gone(set())
