"""The contract of a cluster: hosts that are joined by links and can run roles."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rudder.cluster.roles import Role
from rudder.errors import UsageError

_PIPE_BYTES = 1 << 20


@dataclass(frozen=True)
class Host:
    """One host.

    Attributes:
        address: its IPv4 address on the network that joins the hosts.
        interface: name of the interface that has it.
        devices: CUDA devices for its roles; None = whatever is there.
    """

    index: int
    name: str
    address: str
    interface: str = "eth0"
    devices: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


@dataclass(frozen=True)
class Counters:
    """Bytes that one host's interface has received and sent since the cluster started."""

    rx_bytes: int
    tx_bytes: int


class RoleProcess(ABC):
    """A role that was started.

    Attributes:
        role: what was started.
        output: readable descriptor of the role's stdout and stderr, in the order written; the
            owner of the handle reads it until its end and closes it.
    """

    role: Role
    output: int

    @abstractmethod
    def poll(self) -> int | None:
        """The exit status, negative for a signal as in ``subprocess``; None while it runs."""

    @property
    @abstractmethod
    def ended_at(self) -> float:
        """``time.monotonic()`` of the end; only meaningful once ``poll`` has an answer."""

    @abstractmethod
    def send_signal(self, number: int) -> None:
        """Signal the role and its process group; nothing happens once it has ended."""


class Cluster(ABC):
    """Hosts for one job after another. A context manager: on exit nothing of it is left.

    Attributes:
        hosts: complete once the context is entered.
        kind: "local", "ssh", "slurm": what messages and results call it.
        with_launcher: the hosts' processes can open the launcher's Unix sockets.
    """

    hosts: tuple[Host, ...]
    kind: str = "local"
    with_launcher: bool = True

    @abstractmethod
    def __enter__(self) -> Cluster:
        """Start the hosts.

        Raises:
            ClusterError: they cannot be started or reached.
        """

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process and free the hosts."""

    @abstractmethod
    def spawn(self, role: Role) -> RoleProcess:
        """Start a role on its host; a role that cannot be started there ends with status 127.

        Raises:
            ClusterError: the cluster is not running, or no more.
            UsageError: there is no such host.
        """

    @abstractmethod
    def failure(self) -> str | None:
        """What has failed of the cluster itself (a dead host, say); None while all is well."""

    @abstractmethod
    def clean(self) -> None:
        """End whatever jobs have left on the hosts: processes and shared memory."""

    @abstractmethod
    def counters(self) -> list[Counters]:
        """The kernel's byte counters of each host's interface."""

    @abstractmethod
    def shape(self, rate_mbit: float) -> None:
        """Limit each host's link to ``rate_mbit`` · 10^6 bit/s in each direction; 0 = unshaped."""

    # What is trivial where the hosts share the launcher's machine.

    def python(self, host: int) -> str:
        """The interpreter of a host's roles."""
        return sys.executable

    def place(self, host: int, path: Path) -> Path:
        """Where a host has what lies at ``path`` on the launcher's machine."""
        return path

    def free_ports(self, host: int, wanted: Sequence[int]) -> list[int]:
        """As many ports as wanted that are free on a host; those wanted where no others can be."""
        return list(wanted)

    def deliver(  # noqa: B027 - files of one machine are there
        self, folder: Path, files: Sequence[Sequence[str]], *, in_memory: bool = False
    ) -> None:
        """Have some files of a folder on the hosts, the same bytes as here.

        Args:
            files: for each host, names below ``folder``; one that ends with "/" is made there.
            in_memory: the host's roles will hold these files in ``/dev/shm``.

        Raises:
            PreflightError: what is wrong on any host, and the commands that mend it.
        """

    def check_file(self, path: Path) -> None:  # noqa: B027 - likewise
        """Have a file that is not Rudder's to copy on all hosts, the same bytes as here.

        Raises:
            PreflightError: a host has another file there, or none.
        """

    def collect(  # noqa: B027 - likewise
        self, folder: Path
    ) -> None:
        """Bring here what roles have written to this folder on their hosts.

        Raises:
            ClusterError: a host did not give it.
        """


def output_pipe() -> tuple[int, int]:
    """A pipe for one role's output: the end to read, which does not block, and the end to write."""
    output, writer = os.pipe()
    with contextlib.suppress(PermissionError):  # beyond the user's quota: the default will do
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(output, False)
    return output, writer


def check_hosts(hosts: Sequence[Host]) -> tuple[Host, ...]:
    """The hosts as a tuple.

    Raises:
        UsageError: no host, or two hosts with one address or name (DGL finds its machine id by
            address, so such hosts would overwrite each other's data).
    """
    if not hosts:
        raise UsageError("a cluster of 0 hosts cannot run anything; ask for at least 1")
    seen: dict[str, Host] = {}
    for host in hosts:
        for key in (host.address, host.name):
            other = seen.setdefault(key, host)
            if other is not host:
                raise UsageError(
                    f"host {other.index} ({other.name}) and host {host.index} ({host.name}) are "
                    f"both called {key}; give each host an address and a name of its own"
                )
    return tuple(hosts)


def check_rate(rate_mbit: float) -> float:
    """A link rate in Mbit/s (10^6), 0 for unshaped.

    Raises:
        UsageError: negative, not a number, or so low that no packet would pass.
    """
    if not math.isfinite(rate_mbit) or rate_mbit < 0 or 0 < rate_mbit < 0.1:
        raise UsageError(
            f"a link rate of {rate_mbit} Mbit/s is not possible; use 0 (unshaped) or at least 0.1"
        )
    return float(rate_mbit)


def describe_status(status: int) -> str:
    """An exit status in words, negative for a signal."""
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with exit status {status}"
