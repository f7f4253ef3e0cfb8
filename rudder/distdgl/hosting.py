"""What every DistDGL job on hosts has in common: the cluster, the servers, the deadlines."""

from __future__ import annotations

from pathlib import Path

from rudder.cluster.local import LocalCluster
from rudder.cluster.roles import Role
from rudder.cluster.supervisor import Deadline
from rudder.distdgl.environment import Environment

PRELOAD = ("rudder.distdgl.preload",)
"""Imported once per machine; roles are forked from there, since start-up is mostly imports."""

SILENCE_S = 120.0
"""A trainer that reports nothing for so long has hung."""

DEADLINES = (
    Deadline(phase="started", seconds=60.0, kinds=("server", "trainer")),
    Deadline(phase="ready", seconds=180.0, kinds=("trainer",)),
)


def local_cluster(parts: int, rate: float) -> LocalCluster:
    """Emulated hosts, one per part, links shaped to ``rate`` Mbit/s (0 = unshaped)."""
    return LocalCluster(parts, rate=rate, preload=PRELOAD)


def server_roles(environment: Environment, logs: Path) -> list[Role]:
    """One DistDGL server per host; they end when the last trainer has left."""
    return [
        Role(
            host=host.index,
            kind="server",
            index=host.index,
            entry="rudder.distdgl.server:serve",
            env=environment.server(host.index),
            log=logs / f"server-{host.index}.log",
            service=True,
        )
        for host in environment.hosts
    ]
