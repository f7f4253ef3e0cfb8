"""Where a job's hosts are: the option ``--hosts`` of every command that starts hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudder.cluster.hosts import Cluster
from rudder.cluster.hostsfile import HostLine, read_hosts
from rudder.cluster.remote import RemoteCluster
from rudder.cluster.ssh import SshCluster
from rudder.distdgl.hosting import emulated
from rudder.errors import HostsFileError, UsageError
from rudder.scenario import Scenario


@dataclass(frozen=True)
class ClusterPlace:
    """Emulated hosts (``hosts`` None), or those of a hosts file, over ssh.

    Attributes:
        hosts: path of a hosts file.
        data: the data directory here; what lies below it is copied to the hosts that lack it.
        ssh_config: a configuration file for ssh, in place of the user's.
        allow_public: hosts may have addresses of the Internet.
    """

    hosts: str | None = None
    data: Path | None = None
    ssh_config: Path | None = None
    allow_public: bool = False

    @property
    def real(self) -> bool:
        """Whether the hosts are other machines, whose links are what they are."""
        return self.hosts is not None

    def lines(self) -> tuple[HostLine, ...]:
        """Of the hosts file.

        Raises:
            HostsFileError: it cannot be read or meant, or asks for trainers that differ by host.
        """
        lines = read_hosts(Path(str(self.hosts)))
        counts = [line.trainers for line in lines]
        if len(set(counts)) > 1:
            said = ", ".join("nothing" if count is None else str(count) for count in counts)
            raise HostsFileError(
                f"{self.hosts}: DistDGL wants as many trainers on every host, the lines say {said}"
            )
        return lines

    def fill_in(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Scenario fields with what the hosts say laid under: how many parts, how many trainers."""
        if not self.real:
            return dict(given)
        lines = self.lines()
        said: dict[str, Any] = {"parts": len(lines)}
        if lines[0].trainers is not None:
            said["trainers"] = lines[0].trainers
        return {**said, **given}

    def check(self, scenario: Scenario) -> None:
        """Refuse a scenario that these hosts cannot have.

        Raises:
            UsageError: another number of parts or trainers than hosts say, or shaped links.
        """
        if not self.real:
            return
        lines = self.lines()
        if len(lines) != scenario.parts:
            raise UsageError(
                f"{self.hosts} names {len(lines)} hosts, but the scenario has {scenario.parts} "
                "parts; each host holds one: leave out --parts, or name as many hosts"
            )
        if lines[0].trainers not in (None, scenario.trainers):
            raise UsageError(
                f"{self.hosts} says trainers={lines[0].trainers}, but the scenario "
                f"{scenario.trainers}; leave one of them out"
            )
        if scenario.rate or any(rate for _, rate in scenario.rate_at):
            raise UsageError(
                "the links of real hosts are what they are: leave out --rate and --rate-at"
            )

    def make(self, parts: int, rate: float) -> Cluster:
        """The cluster, not yet entered."""
        if not self.real:
            return emulated(parts, rate)
        return self.remote()

    def remote(self) -> RemoteCluster:
        """The real hosts, not yet entered."""
        if self.data is None:
            raise UsageError("hosts of a hosts file need a data directory to be copied from")
        return SshCluster(
            self.lines(), self.data, config=self.ssh_config, allow_public=self.allow_public
        )
