"""The environment variables of DistDGL's processes: what DGL's own launcher would have set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rudder.cluster.hosts import Cluster, Host

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
        ip_config: where :meth:`write_ip_config` puts DGL's list of servers.
        ports: of each host's server.
        rendezvous: port on the first host where trainers find each other.
        place: where a host, by index, has what lies at a path here.
    """

    hosts: Sequence[Host]
    config: Path
    trainers: int
    ip_config: Path
    ports: Sequence[int]
    rendezvous: int
    place: Callable[[int, Path], Path]

    @classmethod
    def on(cls, cluster: Cluster, config: Path, trainers: int, ip_config: Path) -> Environment:
        """For a job on a cluster, with ports that are free there."""
        first, *others = cluster.hosts
        port, rendezvous = cluster.free_ports(first.index, (DGL_PORT, RENDEZVOUS_PORT))
        ports = [port, *(cluster.free_ports(host.index, (DGL_PORT,))[0] for host in others)]
        return cls(cluster.hosts, config, trainers, ip_config, ports, rendezvous, cluster.place)

    @property
    def world(self) -> int:
        return len(self.hosts) * self.trainers

    def write_ip_config(self) -> None:
        """One ``address port`` a line, in order of the parts."""
        self.ip_config.write_text(
            "".join(f"{h.address} {p}\n" for h, p in zip(self.hosts, self.ports, strict=True))
        )

    def _common(self, host: Host) -> dict[str, str]:
        return {
            "DGL_DIST_MODE": "distributed",
            "DGL_IP_CONFIG": str(self.place(host.index, self.ip_config)),
            "DGL_CONF_PATH": str(self.place(host.index, self.config)),
            "DGL_NUM_SERVER": "1",
            "DGL_NUM_CLIENT": str(self.world),
            "DGL_NUM_SAMPLER": "0",
            "DGL_GRAPH_FORMAT": "csc",
            "DGL_KEEP_ALIVE": "0",
            "DGL_DIST_MAX_TRY_TIMES": str(CONNECT_TRIES),
            "DGLBACKEND": "pytorch",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": host.interface,
            "TP_SOCKET_IFNAME": host.interface,
        }

    def server(self, host: int) -> dict[str, str]:
        """Variables of the server of a host."""
        common = {**self._common(self.hosts[host]), **self._meeting()}
        return {**common, "DGL_ROLE": "server", "DGL_SERVER_ID": str(host)}

    def trainer(self, host: int, local: int) -> dict[str, str]:
        """Variables of trainer ``local`` of a host; ranks count host by host."""
        return {
            **self._common(self.hosts[host]),
            **self._devices(host, local),
            "DGL_ROLE": "client",
            "RANK": str(host * self.trainers + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(self.world),
            "LOCAL_WORLD_SIZE": str(self.trainers),
            **self._meeting(),
            # The first server holds torch's store; rank 0's own would listen to everybody.
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }

    def _meeting(self) -> dict[str, str]:
        """Where trainers find each other."""
        return {"MASTER_ADDR": self.hosts[0].address, "MASTER_PORT": str(self.rendezvous)}

    def _devices(self, host: int, local: int) -> dict[str, str]:
        """One of the host's devices for each trainer, in turn."""
        devices = self.hosts[host].devices
        if devices is None:
            return {}
        return {"CUDA_VISIBLE_DEVICES": str(devices[local % len(devices)])}
