"""Does one thing in the namespaces of a process: ``inside.py PID ORDER …``.

``link NAME up|down``, ``rate NAME MBIT``: of the network. ``full FOLDER``: no room is left in the
memory file system there.
"""

from __future__ import annotations

import os
import sys

from rudder.cluster.namespaces import NEWNET, NEWNS, NEWUSER, mount, setns

_MS_REMOUNT_NOSUID_NODEV = 32 | 2 | 4


def main(pid: str, order: str, *arguments: str) -> None:
    flags = {"user": NEWUSER, "mnt": NEWNS, "net": NEWNET}
    kinds = ["mnt"] if order == "full" else ["net"]
    if os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"):
        kinds.insert(0, "user")
    for descriptor, flag in [
        (os.open(f"/proc/{pid}/ns/{k}", os.O_RDONLY), flags[k]) for k in kinds
    ]:
        setns(descriptor, flag)
    {"link": link, "rate": rate, "full": full}[order](*arguments)


def link(name: str, state: str) -> None:
    from pyroute2 import IPRoute

    with IPRoute() as routes:
        routes.link("set", index=routes.link_lookup(ifname=name)[0], state=state)


def rate(name: str, mbit: str) -> None:
    from pyroute2 import IPRoute

    with IPRoute() as routes:
        routes.tc(
            "replace", "tbf", routes.link_lookup(ifname=name)[0], 0x10000,
            rate=round(float(mbit) * 1e6 / 8), burst=262144, latency="200ms",
        )  # fmt: skip


def full(folder: str) -> None:
    room = os.statvfs(folder)
    used = (room.f_blocks - room.f_bfree) * room.f_frsize
    mount("tmpfs", folder, "tmpfs", _MS_REMOUNT_NOSUID_NODEV, f"size={max(used, 4096)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
