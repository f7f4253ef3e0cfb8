"""What tests of real clusters share: an ordinary user on emulated hosts, and commands that run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rudder.cluster import LocalCluster, Role, RoleProcess

USER, UID = "ann", 54321
RUDDER = (
    sys.executable, "-I", "-c", "import sys; from rudder.cli.app import main; sys.exit(main())"
)  # fmt: skip
_ROLE = Path(__file__).with_name("user_role.py")


class Run:
    """A process on an emulated host, and what it has said."""

    def __init__(self, process: RoleProcess) -> None:
        self.process = process
        self.text = ""

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
        return self.text

    def wait(self, seconds: float) -> int:
        """Its exit status."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            self.read()
            assert time.monotonic() < deadline, f"still runs after {seconds} s: {self.text}"
            time.sleep(0.05)
        self.read()
        status = self.process.poll()
        assert status is not None
        return status

    def wait_for(self, done: Callable[[str], bool], seconds: float) -> None:
        """Until it has said something, or something has become true."""
        deadline = time.monotonic() + seconds
        while not done(self.read()):
            assert self.process.poll() is None, self.read()
            assert time.monotonic() < deadline, f"not within {seconds} s: {self.text}"
            time.sleep(0.05)


class Starter:
    """Starts commands on the hosts of a cluster; ``user``: as an ordinary one."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self._cluster, self._folder, self._count = cluster, folder, 0

    def start(
        self,
        host: int,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        user: bool = False,
    ) -> Run:
        if user:
            home, passwd = self._folder / f"home-{host}", self._folder / f"passwd-{host}"
            home.mkdir(exist_ok=True)
            known = Path("/etc/passwd").read_text()
            passwd.write_text(f"{known}{USER}:x:{UID}:{UID}:test:{home}:/bin/sh\n")
            command = (sys.executable, "-I", str(_ROLE), str(passwd), str(UID), *command)
            env = {"HOME": str(home), "USER": USER, **(env or {})}
        self._count += 1
        role = Role(
            host=host,
            kind="command",
            index=self._count,
            log=self._folder / "unused.log",
            argv=tuple(command),
            env=env or {},
        )
        return Run(self._cluster.spawn(role))
