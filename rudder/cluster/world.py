"""The inside of emulated hosts: the processes that hold their namespaces.

::

    launcher's child     waits; leaves for new user, network, mount and pid namespaces
      world              first process there: bridge, links; forks hosts, commands
        host 0 … n-1     first process of each host, in namespaces of its own
        warm             optional: imports once, forks functions

Every process but the launcher's child lives in the world's pid namespace, so the kernel ends all
of them when ``world`` ends; and ``world`` ends when the launcher closes its socket or dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from rudder.cluster import channel, entry, warm
from rudder.cluster.forker import Forker, HostNamespaces
from rudder.cluster.namespaces import (
    NEWIPC,
    NEWNET,
    NEWNS,
    NEWPID,
    NEWUSER,
    NEWUTS,
    die_with_parent,
    make_mounts_private,
    map_this_user,
    mount_over,
    mount_proc,
    mount_shared_memory,
    own,
    setns,
    unshare,
)
from rudder.cluster.processes import end_everybody

_READY = b"ready"
_CLEAN = b"clean"
_SECONDS_FOR_A_HOST = 10.0
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Plan:
    """What to build; the launcher passes it as JSON."""

    parent: int
    control: int
    warm: int
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    prefix: int
    rate: float
    preload: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> Plan:
        """From JSON, which has lists for tuples."""
        given: dict[str, Any] = json.loads(text)
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in given.items()
        }
        return cls(**values)


def main(arguments: Sequence[str]) -> int:
    """Build the world that the one argument describes and keep it until the launcher goes."""
    plan = Plan.read(arguments[0])
    control = socket.socket(fileno=plan.control)
    warm_control = socket.socket(fileno=plan.warm)
    control.set_inheritable(False)
    warm_control.set_inheritable(False)
    try:
        _leave_for_a_new_world()
        world = os.fork()
    except OSError as error:
        _tell_failure(control, error)
        return 1
    if world != 0:
        die_with_parent()  # entering a user namespace has reset it
        control.close()
        warm_control.close()
        if os.getppid() != plan.parent:
            os.kill(world, signal.SIGKILL)
        os.waitpid(world, 0)
        return 0
    die_with_parent()
    work = _World(plan, control, warm_control).run()
    if work is not None:
        entry.finish(work)
    return 0


def _leave_for_a_new_world() -> None:
    uid, gid = os.getuid(), os.getgid()
    die_with_parent()
    unshare(NEWUSER, "unshare user namespace")
    map_this_user(uid, gid)
    unshare(NEWNS, "unshare mount namespace")
    unshare(NEWNET, "unshare network namespace")
    unshare(NEWPID, "unshare pid namespace")


def _tell_failure(control: socket.socket, error: Exception) -> None:
    refused = isinstance(error, OSError)
    what = f"{getattr(error, 'filename', None) or 'network'}: {error}"
    channel.send(control, {"event": "failed", "message": what, "refused": refused})


class _World:
    """The first process of the outer world."""

    def __init__(self, plan: Plan, control: socket.socket, warm_control: socket.socket) -> None:
        self._plan = plan
        self._control = control
        self._warm_control = warm_control
        self._lines: list[socket.socket] = []
        self._hosts: list[HostNamespaces] = []
        self._rate = 0.0

    def run(self) -> Callable[[], None] | None:
        """Build, then serve. As :meth:`Forker.serve`, it also returns in forked children."""
        try:
            make_mounts_private()
            mount_proc()
            _silence_ipv6()
            for index in range(len(self._plan.names)):
                self._start_host(index)
            if self._plan.preload:
                warm_pid = os.fork()
                if warm_pid == 0:
                    return self._run_warm()
            self._warm_control.close()
            self._connect()
        except Exception as error:  # noqa: BLE001 - told to the launcher, which raises
            _tell_failure(self._control, error)
            return None
        forker = Forker(
            self._control,
            self._hosts,
            {"clean": self._clean, "counters": self._count, "shape": self._shape},
        )
        for index, host in enumerate(self._hosts):
            forker.watch(host.first, partial(self._host_died, index))
        if self._plan.preload:
            forker.watch(warm_pid, self._warm_died)
        channel.send(self._control, {"event": "up"})
        return forker.serve()

    def _start_host(self, index: int) -> None:
        here, there = channel.pair()
        pids = own("pid")
        unshare(NEWPID, "unshare pid namespace of a host")
        pid = os.fork()
        if pid == 0:
            _run_host(self._plan, index, there)
        setns(pids, NEWPID)
        os.close(pids)
        there.close()
        here.settimeout(_SECONDS_FOR_A_HOST)
        answer = here.recv(4096)
        if answer != _READY:
            raise OSError(answer.decode() or f"host {index} died while it started")
        self._lines.append(here)
        self._hosts.append(HostNamespaces.of(pid))

    def _run_warm(self) -> Callable[[], None] | None:
        die_with_parent()
        self._control.close()
        for line in self._lines:
            line.close()
        return warm.serve(self._warm_control, self._hosts, self._plan.preload)

    def _connect(self) -> None:
        from rudder.cluster import links  # only here: pyroute2 is not for the forked processes

        links.connect(
            [(h.first, h.net, a) for h, a in zip(self._hosts, self._plan.addresses, strict=True)],
            self._plan.prefix,
        )
        self._shape({"rate": self._plan.rate})

    def _shape(self, message: channel.Message) -> channel.Message:
        from rudder.cluster import links

        links.shape([host.net for host in self._hosts], message["rate"], self._rate)
        self._rate = message["rate"]
        return {}

    def _count(self, message: channel.Message) -> channel.Message:
        from rudder.cluster import links

        return {"counters": [links.read_counters(host.first) for host in self._hosts]}

    def _clean(self, message: channel.Message) -> channel.Message:
        for name, line in zip(self._plan.names, self._lines, strict=True):
            try:
                line.send(_CLEAN)
                line.recv(4096)
            except (BrokenPipeError, ConnectionResetError):
                continue  # a dead host has nothing left to clean
            except TimeoutError as error:
                raise OSError(f"{name} has not answered for {_SECONDS_FOR_A_HOST:g} s") from error
        return {}

    def _host_died(self, index: int, status: int) -> None:
        channel.send(self._control, {"event": "host", "index": index, "status": status})

    def _warm_died(self, status: int) -> None:
        channel.send(self._control, {"event": "warm-died", "status": status})


def _run_host(plan: Plan, index: int, line: socket.socket) -> NoReturn:
    """The first process of one host: never returns; when it ends, so does all of its host."""
    try:
        die_with_parent()
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            if descriptor > 2 and descriptor != line.fileno():
                with contextlib.suppress(OSError):  # the listing's own is closed by now
                    os.close(descriptor)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans come to us; nobody waits for them
        unshare(NEWNET | NEWNS | NEWUTS | NEWIPC, "unshare namespaces of a host")
        make_mounts_private()
        mount_proc()
        mount_shared_memory()
        socket.sethostname(plan.names[index])
        _silence_ipv6()
        _name_hosts(plan)
    except OSError as error:
        line.send(str(error).encode())
        os._exit(1)
    line.send(_READY)
    while line.recv(4096) == _CLEAN:
        _clean_this_host()
        line.send(_READY)
    os._exit(0)


def _silence_ipv6() -> None:
    """No router solicitations and the like in the byte counters; the hosts speak IPv4."""
    switch = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
    if switch.exists():
        switch.write_text("1")
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")


def _name_hosts(plan: Plan) -> None:
    """Make the hosts' names resolve, through an /etc/hosts that only this host sees."""
    if not Path("/etc/hosts").exists():
        return
    lines = ["127.0.0.1 localhost"]
    lines += [f"{a} {n}" for a, n in zip(plan.addresses, plan.names, strict=True)]
    table = _SHARED_MEMORY / "hosts"
    table.write_text("\n".join(lines) + "\n")
    table.chmod(0o644)
    mount_over(str(table), "/etc/hosts")
    table.unlink()


def _clean_this_host() -> None:
    end_everybody()
    for path in _SHARED_MEMORY.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
