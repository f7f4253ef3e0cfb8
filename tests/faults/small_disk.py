"""Runs ``rudder`` with a small disk of its own: ``small_disk.py FOLDER BYTES ARGUMENT …``."""

from __future__ import annotations

import os
import sys

from rudder.cli.app import main
from rudder.cluster.namespaces import (
    NEWNS,
    NEWUSER,
    make_mounts_private,
    map_this_user,
    mount,
    unshare,
)

if __name__ == "__main__":
    folder, size, *arguments = sys.argv[1:]
    uid, gid = os.getuid(), os.getgid()
    unshare(NEWUSER, "unshare user namespace")
    map_this_user(uid, gid)
    unshare(NEWNS, "unshare mount namespace")
    make_mounts_private()
    mount("tmpfs", folder, "tmpfs", 0, f"size={size},mode=0755")
    sys.exit(main(arguments))
