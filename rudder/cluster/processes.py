"""Ends what a process has started on a host. Sent to hosts as source (``shipped.py``)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_SECONDS_TO_GO = 3.0


def end_everybody() -> None:
    """Kill all other processes of this pid namespace, whose first process this is."""
    if os.getpid() != 1:
        raise RuntimeError("only the first process of a pid namespace may end everybody in it")
    deadline = time.monotonic() + _SECONDS_TO_GO
    with contextlib.suppress(ProcessLookupError):  # there may be nobody
        os.kill(-1, signal.SIGKILL)
    while [pid for pid in _parents() if pid != 1] and time.monotonic() < deadline:
        time.sleep(0.01)


def end_descendants() -> None:
    """Kill what this process has started, directly or not, orphans that it has adopted included."""
    deadline = time.monotonic() + _SECONDS_TO_GO
    while (pids := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # ended meanwhile
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def descendants(ancestor: int) -> list[int]:
    """Processes that run (are not just waiting to be reaped) below one."""
    parents = _parents()
    found: list[int] = []
    for pid in parents:
        above = parents[pid]
        while above in parents and above != ancestor:
            above = parents[above]
        if above == ancestor:
            found.append(pid)
    return found


def _parents() -> dict[int, int]:
    """The parent of every process that runs."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{name}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent = stat.rpartition(")")[2].split()[:2]
        if state not in "ZX":
            found[int(name)] = int(parent)
    return found
