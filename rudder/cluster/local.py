"""Emulated hosts on one Linux machine, without root."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any

from rudder.cluster import channel
from rudder.cluster.hosts import (
    Cluster,
    Counters,
    Host,
    RoleProcess,
    check_hosts,
    check_rate,
    describe_status,
    output_pipe,
)
from rudder.cluster.report import VARIABLE
from rudder.cluster.roles import Role, python_command
from rudder.cluster.support import explain
from rudder.cluster.world import Plan
from rudder.errors import ClusterError, NamespaceError, UsageError

_SECONDS_TO_START = 60.0
_SECONDS_TO_ANSWER = 30.0
_SECONDS_TO_END = 10.0
_POLL_SECONDS = 0.005


class LocalProcess(RoleProcess):
    """A role on an emulated host."""

    def __init__(self, cluster: LocalCluster, role: Role, number: int, output: int, warm: bool):
        self.role = role
        self.output = output
        self.number = number
        self.warm = warm
        self._cluster = cluster
        self._status: int | None = None
        self._ended_at = 0.0

    def poll(self) -> int | None:
        self._cluster.pump()
        return self._status

    @property
    def ended_at(self) -> float:
        return self._ended_at

    def send_signal(self, number: int) -> None:
        if self._status is None:
            self._cluster.signal(self, number)

    def ended(self, status: int, at: float) -> None:
        """Called by the cluster, once."""
        self._status, self._ended_at = status, at


class LocalCluster(Cluster):
    """Hosts emulated by namespaces of this machine's kernel, each with its own network, processes,
    host name and ``/dev/shm``, joined by a bridge.

    The hosts share this machine's files; what is written there belongs to the calling user. They
    reach each other (by address and by name, ``host0`` …) and nothing else: no outside network.
    Several clusters at once, with the same addresses too, do not see each other. When this process
    ends in whatever way, the kernel ends the hosts and everything on them. That includes the thread
    that enters the context: keep it alive while the cluster is used.

    Args:
        hosts: how many.
        rate: of each link in Mbit/s (10^6) and direction; 0 = unshaped.
        subnet: the hosts' network; host k has its (k+1)-th address.
        preload: modules that one warm process imports once; every role with an ``entry`` is forked
            from it and finds them imported. None: each role is a new interpreter.
        addresses: the hosts' addresses, to choose them yourself.

    Raises:
        UsageError: no hosts, too many for the subnet, two with one address, a bad rate or subnet.
    """

    def __init__(
        self,
        hosts: int,
        rate: float = 0.0,
        subnet: str = "10.91.0.0/24",
        *,
        preload: Sequence[str] = (),
        addresses: Sequence[str] | None = None,
    ) -> None:
        if hosts < 1:
            raise UsageError(f"a cluster of {hosts} hosts cannot run anything; ask for at least 1")
        network = _network(subnet)
        given = list(addresses) if addresses is not None else _first(network, hosts)
        if len(given) != hosts:
            raise UsageError(f"{hosts} hosts but {len(given)} addresses")
        for address in given:
            _check_address(address, network)
        self.hosts = check_hosts([Host(k, f"host{k}", a) for k, a in enumerate(given)])
        self.preload = tuple(preload)
        self._rate = check_rate(rate)
        self._prefix = network.prefixlen
        self._lock = threading.RLock()
        self._launched: subprocess.Popen[bytes] | None = None
        self._world: socket.socket | None = None
        self._warm: socket.socket | None = None
        self._log = -1
        self._numbers = 0
        self._processes: dict[int, LocalProcess] = {}
        self._replies: dict[int, channel.Message] = {}
        self._up = False
        self._refused = False
        self._failure: str | None = None
        self.warm_seconds: float | None = None
        """How long the warm process imported; None before it is done."""

    def __enter__(self) -> LocalCluster:
        if self._launched is not None:
            raise ClusterError("this cluster has been started already; make a new one")
        try:
            self._launch()
            self._wait(lambda: self._up or self._failure is not None, "start", _SECONDS_TO_START)
            if self._failure is not None:
                kind = NamespaceError if self._refused else ClusterError
                raise kind(explain(self._failure) if self._refused else self._failure)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def spawn(self, role: Role) -> LocalProcess:
        if not 0 <= role.host < len(self.hosts):
            raise UsageError(f"role {role.name}: there are only {len(self.hosts)} hosts")
        warm = role.entry is not None and bool(self.preload)
        task: dict[str, Any] = {
            "host": role.host,
            "cwd": str(role.cwd),
            "env": {**os.environ, "PYTHONUNBUFFERED": "1", VARIABLE: "1", **role.env},
        }
        if warm:
            task |= {"entry": role.entry, "kwargs": dict(role.kwargs)}
        else:
            task |= {"argv": list(role.command())}
        output, writer = output_pipe()
        parcel = channel.parcel(task)
        with self._lock:
            self._numbers += 1
            process = LocalProcess(self, role, self._numbers, output, warm)
            try:
                message = {"do": "spawn", "id": process.number}
                channel.send(self._end_of(warm), message, (parcel, writer))
            except (OSError, ClusterError) as error:
                os.close(output)
                self.pump()
                raise ClusterError(f"cannot start {role.name}: {self._failure or error}") from error
            finally:
                os.close(parcel)
                os.close(writer)
            self._processes[process.number] = process
        return process

    def failure(self) -> str | None:
        self.pump()
        return self._failure

    def clean(self) -> None:
        self._ask({"do": "clean"})

    def counters(self) -> list[Counters]:
        return [Counters(rx, tx) for rx, tx in self._ask({"do": "counters"})["counters"]]

    def shape(self, rate_mbit: float) -> None:
        self._ask({"do": "shape", "rate": check_rate(rate_mbit)})

    def wait_warm(self, seconds: float = 120.0) -> float:
        """Wait until the warm process has imported its modules; return how long that took it.

        Roles may be started before; they wait by themselves.

        Raises:
            ClusterError: an import failed, or takes longer than ``seconds``.
        """
        if not self.preload:
            return 0.0
        done = self._wait_for(
            lambda: self.warm_seconds is not None or self._failure is not None, seconds
        )
        if self._failure is not None or not done or self.warm_seconds is None:
            raise ClusterError(
                self._failure or f"importing {', '.join(self.preload)} takes over {seconds} s"
            )
        return self.warm_seconds

    # What the processes of this cluster use.

    def pump(self) -> None:
        """Take in what the processes inside have told so far."""
        with self._lock:
            self._drain(warm=True)
            self._drain(warm=False)

    def signal(self, process: LocalProcess, what: int) -> None:
        """Deliver a signal to a process of this cluster."""
        with self._lock:
            message = {"do": "signal", "id": process.number, "signal": int(what)}
            with contextlib.suppress(OSError, ClusterError):  # its forker is gone, and so is it
                channel.send(self._end_of(process.warm), message)

    # Inside.

    def _launch(self) -> None:
        self._world, world = channel.pair()
        self._warm, warm = channel.pair()
        self._log = os.memfd_create("rudder-world-log")
        plan = Plan(
            parent=os.getpid(),
            control=world.fileno(),
            warm=warm.fileno(),
            names=tuple(host.name for host in self.hosts),
            addresses=tuple(host.address for host in self.hosts),
            prefix=self._prefix,
            rate=self._rate,
            preload=self.preload,
        )
        with world, warm:
            self._launched = subprocess.Popen(
                python_command("rudder.cluster.world", json.dumps(asdict(plan))),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(world.fileno(), warm.fileno()),
                start_new_session=True,  # Ctrl-C reaches the launcher alone, which ends the rest
            )

    def _end_of(self, warm: bool) -> socket.socket:
        end = self._warm if warm else self._world
        if end is None:
            raise ClusterError(self._failure or "this cluster is not running")
        return end

    def _ask(self, request: channel.Message) -> channel.Message:
        with self._lock:
            self._numbers += 1
            number = self._numbers
            try:
                channel.send(self._end_of(False), {**request, "id": number})
            except OSError as error:
                self.pump()
                raise ClusterError(self._failure or f"the hosts are gone: {error}") from error
        self._wait(
            lambda: number in self._replies or self._world is None,
            request["do"],
            _SECONDS_TO_ANSWER,
        )
        with self._lock:
            reply = self._replies.pop(number, {"error": self._failure})
        if "error" in reply:
            raise ClusterError(f"cannot {request['do']} the emulated hosts: {reply['error']}")
        return reply

    def _wait(self, done: Callable[[], bool], what: str, seconds: float) -> None:
        if not self._wait_for(done, seconds):
            raise ClusterError(f"the emulated hosts did not {what} within {seconds:.0f} s")

    def _wait_for(self, done: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        self.pump()
        while not done():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
            self.pump()
        return True

    def _drain(self, warm: bool) -> None:
        while (end := self._warm if warm else self._world) is not None:
            try:
                message, _ = channel.receive(end, wait=False)
            except BlockingIOError:
                return
            if message is None:
                self._lost(warm)
            else:
                self._take(message)

    def _take(self, message: channel.Message) -> None:
        event = message["event"]
        if event == "ended":
            self._processes.pop(message["id"]).ended(message["status"], message["at"])
        elif event == "reply":
            self._replies[message["id"]] = message
        elif event == "up":
            self._up = True
        elif event == "warm":
            self.warm_seconds = message["seconds"]
        elif event == "host":
            host = self.hosts[message["index"]]
            self._fail(f"{host} died: its first process {describe_status(message['status'])}")
        elif event == "warm-died":
            self._drain(warm=True)  # it may have said why
            self._fail(
                f"the warm process that roles are forked from {describe_status(message['status'])}"
            )
        elif event == "failed":
            self._refused = bool(message.get("refused"))
            self._fail(message["message"])

    def _fail(self, what: str) -> None:
        if self._failure is None:
            self._failure = what

    def _lost(self, warm: bool) -> None:
        """One of the two forking processes is gone, and its roles with it."""
        if warm and self._warm is not None:
            self._warm.close()
            self._warm = None
        if not warm and self._world is not None:
            self._world.close()
            self._world = None
            self._fail("the process that holds the emulated hosts ended" + self._log_tail())
        now = time.monotonic()
        for number, process in list(self._processes.items()):
            if process.warm == warm:
                del self._processes[number]
                process.ended(-signal.SIGKILL, now)

    def _log_tail(self) -> str:
        size = os.fstat(self._log).st_size
        text = os.pread(self._log, 4000, max(0, size - 4000)).decode(errors="replace").strip()
        return f"; it said:\n{text}" if text else ""

    def _end(self) -> None:
        """End everything: the world ends when its socket closes, and the kernel ends the rest."""
        with self._lock:
            for end in (self._warm, self._world):
                if end is not None:
                    end.close()
            self._warm = self._world = None
            self._fail("the cluster was closed")
        if self._launched is not None:
            try:
                self._launched.wait(_SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                self._launched.kill()
                self._launched.wait()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
        now = time.monotonic()
        for process in self._processes.values():
            process.ended(-signal.SIGKILL, now)
        self._processes.clear()


def _network(subnet: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(subnet)
    except ValueError as error:
        raise UsageError(f"subnet {subnet!r} is not an IPv4 network: {error}") from error


def _check_address(address: str, network: ipaddress.IPv4Network) -> None:
    try:
        inside = ipaddress.IPv4Address(address) in network
    except ValueError as error:
        raise UsageError(f"address {address!r} is not an IPv4 address: {error}") from error
    if not inside:
        raise UsageError(f"address {address} is not in the subnet {network}")


def _first(network: ipaddress.IPv4Network, hosts: int) -> list[str]:
    room = max(0, network.num_addresses - 2)
    if hosts > room:
        raise UsageError(f"{hosts} hosts do not fit into {network}, which has {room} addresses")
    return [str(network.network_address + k + 1) for k in range(hosts)]
