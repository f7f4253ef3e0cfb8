"""Runs a shell script as a role on every host of a hosts file: one argument, a JSON object."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rudder.cluster import Deadline, Role, Supervisor
from rudder.cluster.hostsfile import read_hosts
from rudder.cluster.ssh import SshCluster
from rudder.errors import RudderError


def main(text: str) -> int:
    task = json.loads(text)
    folder, env = Path(task["folder"]), task["env"]
    cluster = SshCluster(read_hosts(Path(task["hosts"])), folder, config=Path(task["config"]))
    try:
        with cluster:
            print("entered", flush=True)
            roles = [
                Role(
                    host=host.index,
                    kind="holder",
                    index=host.index,
                    log=folder / f"{task['name']}-{host.index}.log",
                    argv=("/bin/sh", "-c", task["script"]),
                    env=env,
                )
                for host in cluster.hosts
            ]
            deadlines = [Deadline("ready", seconds, ("holder",)) for seconds in task["deadlines"]]
            Supervisor(cluster).run(roles, deadlines)
            print([cluster.free_ports(host.index, (1, 2)) for host in cluster.hosts], flush=True)
    except RudderError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
