"""The environment variables of DistDGL's processes: what DGL's own launcher would have set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rudder.cluster.hosts import Host

DGL_PORT = 30050
RENDEZVOUS_PORT = 29500
CONNECT_TRIES = 100
"""Tries of 3 s each, after which a process gives up connecting to its servers; a server answers
once it has opened its part, which takes minutes for a large one."""


@dataclass(frozen=True)
class Environment:
    """Makes the variables of every process of a job with one server per host.

    Args:
        hosts: in order of their parts.
        config: DistDGL's partition config (JSON).
        trainers: trainer processes per host.
        interface: network interface of the cluster on every host.
        ip_config: where :meth:`write_ip_config` puts DGL's list of servers.
    """

    hosts: Sequence[Host]
    config: Path
    trainers: int
    interface: str
    ip_config: Path

    @property
    def world(self) -> int:
        return len(self.hosts) * self.trainers

    def write_ip_config(self) -> None:
        """One ``address port`` a line, in order of the parts."""
        self.ip_config.write_text("".join(f"{h.address} {DGL_PORT}\n" for h in self.hosts))

    def _common(self) -> dict[str, str]:
        return {
            "DGL_DIST_MODE": "distributed",
            "DGL_IP_CONFIG": str(self.ip_config),
            "DGL_CONF_PATH": str(self.config),
            "DGL_NUM_SERVER": "1",
            "DGL_NUM_CLIENT": str(self.world),
            "DGL_NUM_SAMPLER": "0",
            "DGL_GRAPH_FORMAT": "csc",
            "DGL_KEEP_ALIVE": "0",
            "DGL_DIST_MAX_TRY_TIMES": str(CONNECT_TRIES),
            "DGLBACKEND": "pytorch",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": self.interface,
            "TP_SOCKET_IFNAME": self.interface,
        }

    def server(self, host: int) -> dict[str, str]:
        """Variables of the server of a host."""
        return {**self._common(), "DGL_ROLE": "server", "DGL_SERVER_ID": str(host)}

    def trainer(self, host: int, local: int) -> dict[str, str]:
        """Variables of trainer ``local`` of a host; ranks count host by host."""
        return {
            **self._common(),
            "DGL_ROLE": "client",
            "RANK": str(host * self.trainers + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(self.world),
            "LOCAL_WORLD_SIZE": str(self.trainers),
            "MASTER_ADDR": self.hosts[0].address,
            "MASTER_PORT": str(RENDEZVOUS_PORT),
        }
