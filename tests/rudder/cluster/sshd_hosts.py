"""Emulated hosts with a real sshd each, and one more host where a launcher runs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emulated import RUDDER, USER, Run, Starter

from rudder.cluster import LocalCluster

NEEDED = ("/usr/sbin/sshd", "/usr/bin/rsync", "/usr/bin/ssh")
INSTALL = "apt-get install --no-install-recommends openssh-server openssh-client rsync"


@dataclass
class SshdHosts:
    """``count`` hosts that run sshd at ``port``; host ``count`` is the launcher's."""

    cluster: LocalCluster
    folder: Path
    count: int
    port: int
    starter: Starter

    @property
    def config(self) -> Path:
        """For ``ssh -F``."""
        return self.folder / "ssh_config"

    def data(self, host: int) -> Path:
        """A data directory of a host's own, though the disk is the same."""
        return self.folder / f"data-{host}"

    def line(self, host: int, *words: str) -> str:
        """Of a hosts file, with an own data directory."""
        address = self.cluster.hosts[host].address
        return " ".join((f"{USER}@{address}:{self.port}", f"data={self.data(host)}", *words))

    def hosts_file(self, lines: Sequence[str] | None = None, name: str = "hosts.txt") -> Path:
        path = self.folder / name
        lines = [self.line(k) for k in range(self.count)] if lines is None else lines
        path.write_text("# for a test\n" + "\n".join(lines) + "\n")
        return path

    def rudder(self, *arguments: str | Path) -> Run:
        """``rudder ARGUMENTS`` on the launcher's host."""
        return self.starter.start(self.count, (*RUDDER, *map(str, arguments)))


@contextmanager
def sshd_hosts(folder: Path, count: int, port: int = 2222) -> Iterator[SshdHosts]:
    """Start them; every sshd answers when this returns."""
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    for name in ("user", "host"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)]
        subprocess.run(command, check=True, capture_output=True)
    host_key = " ".join((keys / "host.pub").read_text().split()[:2])
    with LocalCluster(count + 1) as cluster:
        starter = Starter(cluster, folder)
        addresses = [host.address for host in cluster.hosts[:count]]
        daemons = []
        for host, address in enumerate(addresses):
            config = folder / f"sshd-{host}.conf"
            config.write_text(
                f"ListenAddress {address}:{port}\nHostKey {keys}/host\n"
                f"AuthorizedKeysFile {keys}/user.pub\nStrictModes no\nUsePAM no\n"
                "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\n"
            )
            command = ["/usr/sbin/sshd", "-D", "-e", "-f", str(config)]
            daemons.append(starter.start(host, command, user=True))
        known = [f"[{address}]:{port} {host_key}\n" for address in addresses]
        (folder / "known_hosts").write_text("".join(known))
        (folder / "ssh_config").write_text(
            f"IdentityFile {keys}/user\nUserKnownHostsFile {folder}/known_hosts\n"
            "IdentitiesOnly yes\n"
        )
        for daemon in daemons:
            daemon.wait_for(lambda said: "Server listening" in said, 20)
        yield SshdHosts(cluster, folder, count, port, starter)
