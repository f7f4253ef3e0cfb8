"""Processes, told apart from every other one. Sent to hosts as source (``cluster/shipped.py``)."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

NOTE_VERSION = 1
"""Of the notes by which a process says what is its own (see ``leftovers.py``)."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Process:
    """A process, told apart from every other one, before and after it.

    Attributes:
        host: name of the machine.
        boot: the kernel's id of this start of the machine.
        namespace: the pid namespace; a container has one of its own.
        pid, started: number, and clock ticks from the machine's start to the process's.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: int

    @classmethod
    def own(cls) -> Process:
        """This process.

        Raises:
            OSError: /proc is not there.
        """
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Process:
        """A process of this pid namespace.

        Raises:
            OSError: there is none, or no /proc.
        """
        _, started = state_and_start(pid)
        namespace = os.readlink("/proc/self/ns/pid")
        boot = _BOOT.read_text().strip()
        return cls(socket.gethostname(), boot, namespace, pid, started)

    def is_gone(self) -> bool:
        """Whether it is certain, from here, that it runs no more.

        False for a process of another machine or container: it cannot be seen from here.
        """
        here = Process.own()
        if self.host != here.host:
            return False
        if self.boot != here.boot:
            return True
        if self.namespace != here.namespace:
            return False
        try:
            state, started = state_and_start(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return True
        return started != self.started or state in "ZX"

    def __str__(self) -> str:
        return f"{self.host} pid {self.pid} start {self.started}"


def state_and_start(pid: int) -> tuple[str, int]:
    """State letter and start time in clock ticks, of proc(5)."""
    # The name, in parentheses, may hold blanks and parentheses itself.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[19])
