"""Hosts that are reached by OpenSSH's client."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rudder.cluster.hosts import Host
from rudder.cluster.hostsfile import HostLine, check_private, resolve_address
from rudder.cluster.preflight import Facts
from rudder.cluster.remote import Reach, RemoteCluster
from rudder.cluster.shipped import BOOTSTRAP
from rudder.errors import ClusterError, UsageError

_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "LogLevel=ERROR",
)
"""Never ask, and notice a host that has gone, or goes, within 15 s."""
_SECONDS_OF_SILENCE = 60
"""After which rsync gives a stalled copy up."""


@dataclass(frozen=True)
class _Way:
    """How ssh reaches one host: options, and whom."""

    options: tuple[str, ...]
    target: str


class SshCluster(RemoteCluster):
    """Real hosts over ssh: one connection per host, with one agent that starts the roles there.

    When this process ends in whatever way, or a connection is lost, the agents end their roles.
    What a job needs is copied by rsync, over the same ssh, to hosts that do not share the folder.

    Args:
        lines: the hosts, in order of their parts.
        data: the launcher's data directory.
        config: a configuration file for ssh, in place of the user's.
        allow_public: hosts may have addresses of the Internet.

    Raises:
        HostsFileError: a name without an IPv4 address, or a public address that is not allowed.
        UsageError: no ssh client here.
    """

    kind = "ssh"

    def __init__(
        self,
        lines: Sequence[HostLine],
        data: Path,
        *,
        config: Path | None = None,
        allow_public: bool = False,
    ) -> None:
        if shutil.which("ssh") is None:
            raise UsageError("there is no ssh here; install OpenSSH's client (openssh-client)")
        self._ways = [_way(line, config) for line in lines]
        reaches = []
        for index, (line, way) in enumerate(zip(lines, self._ways, strict=True)):
            address = resolve_address(line)
            check_private(address, line.where, allow_public)
            python = line.python or sys.executable
            remote = shlex.join((python, "-I", "-u", "-c", BOOTSTRAP))  # the one line ssh forces
            reach = Reach(
                Host(index, f"host{index}", address, devices=line.devices),
                ("ssh", *way.options, "-T", "--", way.target, remote),
                python,
                line.data or data,
                shlex.join(("ssh", *_by_hand(line, config), way.target)),
                line.isolated,
            )
            reaches.append(reach)
        super().__init__(reaches, data)

    def no_way(self, facts: Facts) -> str | None:
        if shutil.which("rsync") is None:
            return "there is no rsync here"
        return None if facts.values["rsync"] else "there is no rsync there"

    def copy(self, host: int, folder: Path, names: Sequence[str], back: bool) -> None:
        way, place = self._ways[host], self.place(host, folder)
        theirs = f"{way.target}:{place}/"
        shell = shlex.join(("ssh", *way.options))
        command = ["rsync", "-rlt", "-s", f"--timeout={_SECONDS_OF_SILENCE}", "-e", shell]
        if back:
            command += ["--remove-source-files", "--", theirs, f"{folder}/"]
        else:
            command += ["--files-from=-", "--from0", "--", f"{folder}/", theirs]
        done = subprocess.run(
            command,
            input=b"".join(name.encode() + b"\0" for name in names),
            capture_output=True,
            check=False,
            start_new_session=True,
        )
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip()
            raise ClusterError(f"{self.hosts[host]}: rsync failed for {place}: {words}")


def _way(line: HostLine, config: Path | None) -> _Way:
    options = [word for option in _OPTIONS for word in ("-o", option)]
    return _Way((*options, *_by_hand(line, config)), line.ssh or line.address)


def _by_hand(line: HostLine, config: Path | None) -> list[str]:
    words = [] if config is None else ["-F", str(config)]
    if line.port is not None:
        words += ["-p", str(line.port)]
    if line.user is not None:
        words += ["-l", line.user]
    return words
