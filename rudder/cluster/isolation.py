"""Gives an agent's roles process ids and a ``/dev/shm`` of their own, where the kernel allows it.

Then two jobs on one host cannot meet in shared memory (DGL names it by array, not by job), and the
kernel ends every process and frees the memory when the agent ends, in whatever way. Sent to hosts
as source (see ``shipped.py``).
"""

from __future__ import annotations

import os

from rudder.cluster.namespaces import (
    NEWNS,
    NEWPID,
    NEWUSER,
    die_with_parent,
    make_mounts_private,
    mount_proc,
    mount_shared_memory,
    unshare,
)


def isolate() -> str | None:
    """Go on in a child that is the first process of new namespaces; its parents wait for it.

    Returns:
        None in the new namespaces; in the old ones, where the kernel refuses, why.
    """
    heard, tell = os.pipe()
    outer = os.fork()
    if outer != 0:
        os.close(tell)
        reason = os.read(heard, 4096).decode()
        os.close(heard)
        if reason == "ok":
            _wait_and_leave(outer)
        os.waitpid(outer, 0)
        return reason or "the process in the new namespaces died"
    os.close(heard)
    try:
        die_with_parent()
        _leave()
        inner = os.fork()
        if inner != 0:
            os.close(tell)
            _wait_and_leave(inner)
        die_with_parent()
        make_mounts_private()
        mount_proc()
        mount_shared_memory()
    except OSError as error:
        os.write(tell, f"{error.filename}: {error.strerror}".encode())
        os._exit(1)
    os.write(tell, b"ok")
    os.close(tell)
    return None


def _leave() -> None:
    """Into new namespaces, as the same user."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        try:
            unshare(NEWNS | NEWPID, "unshare mount and pid namespaces")
            return
        except PermissionError:  # root of a container: as any user
            pass
    unshare(NEWUSER | NEWNS | NEWPID, "unshare user namespace")
    die_with_parent()  # the new credentials have reset it
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _wait_and_leave(child: int) -> None:
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
