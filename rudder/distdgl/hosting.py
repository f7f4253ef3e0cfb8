"""What every DistDGL job on hosts has in common: the cluster, the servers, the deadlines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rudder.cluster.hosts import Cluster, Counters
from rudder.cluster.local import LocalCluster
from rudder.cluster.roles import Role
from rudder.cluster.supervisor import Deadline
from rudder.distdgl.environment import Environment
from rudder.errors import PartitionError
from rudder.partition import Partition

PRELOAD = ("rudder.distdgl.preload",)
"""Imported once per machine; roles are forked from there, since start-up is mostly imports."""

SILENCE_S = 120.0
"""A trainer that reports nothing for so long has hung."""

DEADLINES = (
    Deadline(phase="started", seconds=180.0, kinds=("server", "trainer")),
    Deadline(phase="connected", seconds=360.0, kinds=("trainer",)),
    # Between these a controller may load a model, which has a limit of its own, and the buffer is
    # filled over the network.
    Deadline(phase="ready", seconds=1200.0, kinds=("trainer",)),
)


MakeCluster = Callable[[int, float], Cluster]
"""Of so many hosts, links shaped to so many Mbit/s (0 = unshaped); not yet entered."""


def emulated(parts: int, rate: float) -> Cluster:
    """Hosts on this machine."""
    return LocalCluster(parts, rate=rate, preload=PRELOAD)


class Hosts:
    """Hosts for one job after another; ``keep`` leaves them running in between.

    Args:
        make: what kind of hosts; default: emulated ones.
    """

    def __init__(self, make: MakeCluster = emulated) -> None:
        self.keep = False
        self._make = make
        self._cluster: Cluster | None = None

    @contextmanager
    def __call__(self, parts: int, rate: float) -> Iterator[Cluster]:
        """Hosts for one job, one per part, links shaped to ``rate`` Mbit/s (0 = unshaped).

        After a failure they are ended, kept or not.
        """
        if self._cluster is not None and len(self._cluster.hosts) != parts:
            self.close()
        try:
            if self._cluster is None:
                self._cluster = self._make(parts, rate)
                self._cluster.__enter__()
            else:
                self._cluster.shape(rate)
            yield self._cluster
        except BaseException:
            self.close()
            raise
        if not self.keep:
            self.close()

    def close(self) -> None:
        """End the hosts that are kept."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.__exit__(None, None, None)


def check_served(partition: Partition) -> None:
    """Refuse a partition that DistDGL's servers cannot open.

    Raises:
        PartitionError: a part without edges: DGL shares arrays, and none of length 0.
    """
    bare = [str(part) for part, edges in enumerate(partition.part_edges) if edges == 0]
    if bare:
        raise PartitionError(
            f"part {', '.join(bare)} of {partition.parts} of graph {partition.graph!r} has no edge "
            f"({partition.method} put isolated nodes there), and DistDGL cannot serve it; use "
            "fewer parts or the partitioner 'random'"
        )


def deliver_partition(cluster: Cluster, partition: Partition) -> None:
    """Have each host's part on it, and what describes the whole.

    Raises:
        PreflightError: a host cannot hold it, or did not get it.
    """
    folder = partition.folder

    def files(within: Path) -> list[str]:
        found = (path for path in sorted(within.iterdir()) if path.is_file())
        return [str(p.relative_to(folder)) for p in found if not p.name.startswith(".")]

    whole = files(folder)
    parts = [files(folder / f"part{host.index}") for host in cluster.hosts]
    cluster.deliver(folder, [[*whole, *part] for part in parts], in_memory=True)


def sent_and_received(before: Sequence[Counters], cluster: Cluster) -> list[dict[str, Any]]:
    """Bytes of each host's interface since ``before``."""
    return [
        {
            "host": host.name,
            "rx_bytes": now.rx_bytes - old.rx_bytes,
            "tx_bytes": now.tx_bytes - old.tx_bytes,
        }
        for host, old, now in zip(cluster.hosts, before, cluster.counters(), strict=True)
    ]


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
