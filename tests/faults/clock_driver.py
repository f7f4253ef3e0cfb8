"""Runs ``rudder`` with one trainer under libfaketime: ``clock_driver.py FILE ARGUMENT …``.

The file says by how much that trainer's clock is off; it is read once a second.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from rudder.cli.app import main
from rudder.cluster.local import LocalCluster, LocalProcess
from rudder.cluster.roles import Role
from rudder.distdgl import place

LIBRARY = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
FAKED = 1
"""The trainer whose clock jumps."""


def variables(file: str) -> dict[str, str]:
    """A clock that is set jumps; one that only counts on does not."""
    return {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": file,
        "FAKETIME_CACHE_DURATION": "1",
        "NO_FAKE_STAT": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


class OneClock(LocalCluster):
    """Every role is a new interpreter, since libraries are loaded before it begins."""

    file = ""

    def spawn(self, role: Role) -> LocalProcess:
        if (role.kind, role.index) == ("trainer", FAKED):
            role = replace(role, env={**role.env, **variables(self.file)})
        return super().spawn(role)


if __name__ == "__main__":
    OneClock.file, *arguments = sys.argv[1:]
    place.emulated = lambda parts, rate: OneClock(parts, rate=rate)
    sys.exit(main(arguments))
