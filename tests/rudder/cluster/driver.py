"""A launcher to be interrupted: two hosts with a service and a trainer each.

``driver.py LOGS PRELOAD ENDING``; prints "up" once every role is up, and what it raised, if it had
the time to.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from rudder.cluster import Deadline, LocalCluster, Report, Role, Supervisor


def main(logs: str, preload: str, ending: str) -> None:
    up: set[str] = set()

    def hear(role: Role, report: Report) -> None:
        up.add(role.name)
        if len(up) == 4:
            print("up", flush=True)
            if ending == "exception":
                raise RuntimeError("the launcher's own fault")

    roles = []
    for host in range(2):
        for kind in ("server", "trainer"):
            log = Path(logs) / f"{kind}-{host}.log"
            entry = "cluster_roles:hold"
            roles.append(Role(host, kind, host, log, entry=entry, service=kind == "server"))
    with LocalCluster(2, rate=100, preload=preload.split(",") if preload else ()) as cluster:
        if ending == "outside":  # no supervisor is running when the signal comes
            print("up", flush=True)
            time.sleep(300)
        Supervisor(cluster).run(roles, [Deadline("ready", 60, ("server", "trainer"))], None, hear)


if __name__ == "__main__":
    main(*sys.argv[1:])
