"""Runs a command on an emulated host as an ordinary user: ``PASSWD UID COMMAND…``.

An emulated host knows user 0 alone, and what runs as root there (sshd, slurmd) wants to become
others. So it runs as another user, in a user namespace of its own, and can serve that user alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rudder.cluster.namespaces import NEWUSER, die_with_parent, mount, mount_over, unshare

RUN = Path("/run/rudder-test")


def main(passwd: str, uid: int, *command: str) -> None:
    if not RUN.exists():  # the first on this host
        mount_over(passwd, "/etc/passwd")
        mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
        RUN.mkdir()
        (RUN.parent / "munge").mkdir()
    unshare(NEWUSER, "unshare user namespace")
    die_with_parent()
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} 0 1"), ("gid_map", f"{uid} 0 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
