"""The few Linux calls behind emulated hosts that Python 3.10 lacks (`os.unshare` came with 3.12).

Flag values are those of ``linux/sched.h``, ``linux/mount.h`` and ``linux/prctl.h``.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

NEWNS = 0x00020000
NEWUTS = 0x04000000
NEWIPC = 0x08000000
NEWUSER = 0x10000000
NEWPID = 0x20000000
NEWNET = 0x40000000

_MS_REC_PRIVATE = 0x4000 | 0x40000
_MS_BIND = 0x1000
_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_MS_NOSUID_NODEV = 2 | 4
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def unshare(flags: int, what: str) -> None:
    """Leave the given namespaces for new ones (a new pid namespace: for children only).

    Raises:
        OSError: the kernel refuses; ``what`` is in the message.
    """
    _check(_libc.unshare(flags), what)


def setns(descriptor: int, kind: int) -> None:
    """Enter the namespace behind a descriptor (a pid namespace: for children only)."""
    _check(_libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount, as in mount(2)."""
    _check(
        _libc.mount(
            source.encode(),
            target.encode(),
            kind.encode(),
            ctypes.c_ulong(flags),
            options.encode(),
        ),
        f"mount {kind or 'bind'} on {target}",
    )


def make_mounts_private() -> None:
    """Keep what is mounted here from showing up outside."""
    mount("none", "/", "", _MS_REC_PRIVATE)


def mount_proc() -> None:
    """Show the processes of this pid namespace in /proc."""
    mount("proc", "/proc", "proc", _MS_NOSUID_NODEV_NOEXEC)


def mount_shared_memory() -> None:
    """A /dev/shm of its own (at most half the machine's memory, the kernel's default)."""
    mount("tmpfs", "/dev/shm", "tmpfs", _MS_NOSUID_NODEV, "mode=1777")


def mount_over(source: str, target: str) -> None:
    """Let ``target`` show what ``source`` holds."""
    mount(source, target, "", _MS_BIND)


def map_this_user(uid: int, gid: int) -> None:
    """In a new user namespace: be root inside, and ``uid``/``gid`` for every file outside."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {uid} 1"),
        ("gid_map", f"0 {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def die_with_parent() -> None:
    """Be killed by the kernel when the thread that started this process ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """What this process's children leave behind becomes its own child."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def own(kind: str) -> int:
    """Descriptor of one of this process's namespaces ("net", "pid", …)."""
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


@contextmanager
def inside(descriptor: int, kind: str, flag: int) -> Iterator[None]:
    """Be in another namespace for a while.

    With ``kind="pid"`` this process itself stays where it is; the children that it forks
    meanwhile are born inside.
    """
    home = own(kind)
    try:
        setns(descriptor, flag)
        try:
            yield
        finally:
            setns(home, flag)
    finally:
        os.close(home)
