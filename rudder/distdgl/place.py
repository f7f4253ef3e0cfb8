"""Where a job's hosts are: the option ``--hosts`` of every command that starts hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudder.cluster.hosts import Cluster
from rudder.cluster.hostsfile import HostLine, read_hosts
from rudder.cluster.joined import JoinedCluster, Member, join
from rudder.cluster.remote import RemoteCluster
from rudder.cluster.slurm import SlurmCluster, allocated_nodes
from rudder.cluster.ssh import SshCluster
from rudder.distdgl.hosting import emulated
from rudder.errors import HostsFileError, UsageError
from rudder.scenario import Scenario

SLURM, ENV = "slurm", "env"


@dataclass(frozen=True)
class ClusterPlace:
    """Emulated hosts (``hosts`` None), or real ones.

    Attributes:
        hosts: path of a hosts file; "slurm": those of this allocation; "env": those on which
            somebody else has started this command, one process each, as the environment says.
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

    def join(self) -> None:
        """Where this is not the launcher's process: become its agent, and do not return.

        Raises:
            UsageError: the environment does not say which process this is.
            ClusterError: there is no launcher.
        """
        if self.hosts == ENV:
            member = Member.read()
            if member.rank > 0:
                join(member, self._known_data())

    def fill_in(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Scenario fields with what the hosts say laid under: how many parts, how many trainers.

        Raises:
            HostsFileError: the hosts file cannot be read or meant.
            UsageError: this is no Slurm allocation.
        """
        if not self.real:
            return dict(given)
        parts, trainers = self._shape()
        said = {"parts": parts} if trainers is None else {"parts": parts, "trainers": trainers}
        return {**said, **given}

    def check(self, scenario: Scenario) -> None:
        """Refuse a scenario that these hosts cannot have.

        Raises:
            UsageError: another number of parts or trainers than hosts say, or shaped links.
        """
        if not self.real:
            return
        parts, trainers = self._shape()
        if parts != scenario.parts:
            raise UsageError(
                f"--hosts {self.hosts} means {parts} hosts, but the scenario has {scenario.parts} "
                "parts; each host holds one: leave out --parts, or take as many hosts"
            )
        if trainers not in (None, scenario.trainers):
            raise UsageError(
                f"{self.hosts} says trainers={trainers}, but the scenario {scenario.trainers}; "
                "leave one of them out"
            )
        if scenario.rate or any(rate for _, rate in scenario.rate_at):
            raise UsageError(
                "the links of real hosts are what they are: leave out --rate and --rate-at"
            )

    def check_restarts(self) -> None:
        """Refuse restarts where hosts cannot be had again.

        Raises:
            UsageError: somebody else has started the hosts' processes.
        """
        if self.hosts == ENV:
            raise UsageError(
                "--restarts cannot be had with --hosts env: the processes on the hosts end with "
                "the run; let what started them start them again, with --resume"
            )

    def make(self, parts: int, rate: float) -> Cluster:
        """The cluster, not yet entered."""
        return self.remote() if self.real else emulated(parts, rate)

    def remote(self) -> RemoteCluster:
        """The real hosts, not yet entered."""
        data, public = self._known_data(), self.allow_public
        if self.hosts == SLURM:
            return SlurmCluster(allocated_nodes(), data, allow_public=public)
        if self.hosts == ENV:
            return JoinedCluster(Member.read(), data, allow_public=public)
        return SshCluster(self._lines(), data, config=self.ssh_config, allow_public=public)

    def _known_data(self) -> Path:
        if self.data is None:
            raise UsageError("real hosts need to know the data directory here")
        return self.data

    def _shape(self) -> tuple[int, int | None]:
        """Hosts, and trainers on each if that is said."""
        if self.hosts == SLURM:
            return len(allocated_nodes()), None
        if self.hosts == ENV:
            return Member.read().world, None
        lines = self._lines()
        return len(lines), lines[0].trainers

    def _lines(self) -> tuple[HostLine, ...]:
        lines = read_hosts(Path(str(self.hosts)))
        counts = [line.trainers for line in lines]
        if len(set(counts)) > 1:
            said = ", ".join("nothing" if count is None else str(count) for count in counts)
            raise HostsFileError(
                f"{self.hosts}: DistDGL wants as many trainers on every host, the lines say {said}"
            )
        return lines
