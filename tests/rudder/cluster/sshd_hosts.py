"""Emulated hosts with a real sshd each, and one more host where a launcher runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rudder.cluster import LocalCluster, Role, RoleProcess

USER, UID = "ann", 54321
SSHD = Path("/usr/sbin/sshd")
INSTALL = "apt-get install --no-install-recommends openssh-server rsync"
_ROLE = Path(__file__).with_name("sshd_role.py")
_MAIN = "import sys; from rudder.cli.app import main; sys.exit(main())"


@dataclass
class SshdHosts:
    """``count`` hosts that run sshd at ``port``; host ``count`` is the launcher's."""

    cluster: LocalCluster
    folder: Path
    count: int
    port: int
    daemons: list[RoleProcess]

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

    def start(
        self, *arguments: str, name: str = "launcher", env: Mapping[str, str] | None = None
    ) -> Run:
        """``rudder ARGUMENTS`` on the launcher's host."""
        index = len(list(self.folder.glob("*.out")))
        role = Role(
            host=self.count,
            kind="launcher",
            index=index,
            log=self.folder / f"{name}.log",
            argv=(sys.executable, "-I", "-c", _MAIN, *arguments),
            env=env or {},
        )
        return Run(self.cluster.spawn(role), self.folder / f"{name}-{index}.out")


class Run:
    """A launcher that was started."""

    def __init__(self, process: RoleProcess, out: Path) -> None:
        self.process = process
        self._out = out
        self.text = ""
        out.touch()

    def read(self) -> str:
        """What it has said so far."""
        while True:
            try:
                data = os.read(self.process.output, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                break
            self.text += data.decode(errors="replace")
        self._out.write_text(self.text)
        return self.text

    def wait(self, seconds: float) -> int:
        """Its exit status."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            self.read()
            assert time.monotonic() < deadline, f"still runs after {seconds} s: {self.read()}"
            time.sleep(0.05)
        self.read()
        status = self.process.poll()
        assert status is not None
        return status


@contextmanager
def sshd_hosts(folder: Path, count: int, port: int = 2222) -> Iterator[SshdHosts]:
    """Start them; every sshd answers when this returns."""
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    for name in ("user", "host"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)]
        subprocess.run(command, check=True, capture_output=True)
    with LocalCluster(count + 1) as cluster:
        daemons = [_start(cluster, folder, keys, host, port) for host in range(count)]
        host_key = " ".join((keys / "host.pub").read_text().split()[:2])
        known = [f"[{h.address}]:{port} {host_key}\n" for h in cluster.hosts[:count]]
        (folder / "known_hosts").write_text("".join(known))
        (folder / "ssh_config").write_text(
            f"IdentityFile {keys}/user\nUserKnownHostsFile {folder}/known_hosts\n"
            "IdentitiesOnly yes\n"
        )
        made = SshdHosts(cluster, folder, count, port, daemons)
        for host, daemon in enumerate(daemons):
            _wait(daemon, made, host)
        yield made


def _start(cluster: LocalCluster, folder: Path, keys: Path, host: int, port: int) -> RoleProcess:
    home = folder / f"home-{host}"
    home.mkdir()
    passwd = folder / f"passwd-{host}"
    passwd.write_text(
        Path("/etc/passwd").read_text() + f"{USER}:x:{UID}:{UID}:test:{home}:/bin/sh\n"
    )
    config = folder / f"sshd-{host}.conf"
    config.write_text(
        f"ListenAddress {cluster.hosts[host].address}:{port}\nHostKey {keys}/host\n"
        f"AuthorizedKeysFile {keys}/user.pub\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\n"
    )
    role = Role(
        host=host,
        kind="sshd",
        index=host,
        log=folder / f"sshd-{host}.log",
        argv=(sys.executable, "-I", str(_ROLE), str(config), str(passwd), str(UID)),
        service=True,
    )
    return cluster.spawn(role)


def _wait(daemon: RoleProcess, hosts: SshdHosts, host: int, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    said = b""
    while b"Server listening" not in said:
        assert time.monotonic() < deadline, f"sshd on host {host} does not listen: {said!r}"
        try:
            said += os.read(daemon.output, 1 << 16)
        except BlockingIOError:
            time.sleep(0.02)
        assert daemon.poll() is None, f"sshd on host {host} ended: {said!r}"
