"""Becomes a real sshd on an emulated host, as an ordinary user: ``CONFIG PASSWD UID``.

The emulated host knows user 0 alone, and sshd as root wants to become others. So it runs as another
user, in a user namespace of its own, and can log nobody in but that user.
"""

from __future__ import annotations

import os
import sys

from rudder.cluster.namespaces import NEWUSER, die_with_parent, mount_over, unshare


def main(config: str, passwd: str, uid: int) -> None:
    mount_over(passwd, "/etc/passwd")
    unshare(NEWUSER, "unshare user namespace")
    die_with_parent()
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} 0 1"), ("gid_map", f"{uid} 0 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    os.execv("/usr/sbin/sshd", ["/usr/sbin/sshd", "-D", "-e", "-f", config])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
