"""Starts roles inside hosts by fork, tells when they end. Runs inside the outer world.

Two processes run this loop: the first process of the world, for roles that are commands, and the
warm process (``warm.py``), for roles that are functions and find their imports done. A new role is
born in its host's pid namespace, since only a child can enter one: the forker points its "pid
namespace for children" at the host, forks, and points it back. The child joins the other
namespaces itself.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rudder.cluster import channel, entry
from rudder.cluster.namespaces import (
    NEWIPC,
    NEWNET,
    NEWNS,
    NEWPID,
    NEWUTS,
    die_with_parent,
    own,
    setns,
)

CANNOT_START = 127
"""Exit status of a role that could not be started, as the shell has it."""

Handler = Callable[[channel.Message], channel.Message]


@dataclass(frozen=True)
class HostNamespaces:
    """Descriptors of the namespaces of one host, and the pid of its first process.

    Opened while the host is known to live: its pid may be given to another process later.
    """

    first: int
    net: int
    mnt: int
    uts: int
    ipc: int
    pid: int

    @classmethod
    def of(cls, first: int) -> HostNamespaces:
        """Those of the host whose first process is ``first``."""
        opened = {
            kind: os.open(f"/proc/{first}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
            for kind in ("net", "mnt", "uts", "ipc", "pid")
        }
        return cls(first=first, **opened)

    def join(self) -> None:
        """Move this process there, all but its pid namespace; /proc and paths change last."""
        setns(self.net, NEWNET)
        setns(self.uts, NEWUTS)
        setns(self.ipc, NEWIPC)
        setns(self.mnt, NEWNS)

    def descriptors(self) -> tuple[int, ...]:
        return (self.net, self.mnt, self.uts, self.ipc, self.pid)


class Forker:
    """The loop of one forking process.

    Args:
        control: to the launcher; when the launcher is gone the loop ends.
        hosts: by index.
        handlers: further requests that this process answers, by name.
    """

    def __init__(
        self,
        control: socket.socket,
        hosts: Sequence[HostNamespaces],
        handlers: Mapping[str, Handler] | None = None,
    ) -> None:
        self._control = control
        self._hosts = hosts
        self._handlers = dict(handlers or {})
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._watched: dict[int, tuple[int, Callable[[int], None]]] = {}
        self._roles: dict[int, int] = {}
        self._own_pids = own("pid")

    def watch(self, pid: int, on_end: Callable[[int], None]) -> None:
        """Have ``on_end`` called with the exit status when the child ``pid`` ends."""
        descriptor = os.pidfd_open(pid)
        self._watched[descriptor] = (pid, on_end)
        self._selector.register(descriptor, selectors.EVENT_READ)

    def serve(self) -> Callable[[], None] | None:
        """Serve until the launcher is gone.

        Returns:
            None then. **In a forked child it returns too**: what the child has to do. The caller
            lets its own stack unwind first, so that the child ends like any Python process, with
            exit handlers and a traceback of its own code only.
        """
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._control:
                    self._reap(key.fd)
                    continue
                message, descriptors = channel.receive(self._control)
                if message is None:
                    return None
                work = self._answer(message, descriptors)
                if work is not None:
                    return work

    def _answer(
        self, message: channel.Message, descriptors: list[int]
    ) -> Callable[[], None] | None:
        request = message["do"]
        if request == "spawn":
            return self._spawn(message["id"], *descriptors)
        if request == "signal":
            self._signal(message["id"], message["signal"])
        else:
            try:
                reply = self._handlers[request](message)
            except Exception as error:  # noqa: BLE001 - told to the launcher, which raises
                reply = {"error": f"{type(error).__name__}: {error}"}
            channel.send(self._control, {"event": "reply", "id": message["id"], **reply})
        return None

    def _spawn(self, number: int, parcel: int, output: int) -> Callable[[], None] | None:
        task = channel.unpack(parcel)
        host = self._hosts[task["host"]]
        setns(host.pid, NEWPID)
        try:
            pid = os.fork()
        except OSError as error:  # the host is dead: nothing can be born there any more
            setns(self._own_pids, NEWPID)
            os.write(output, f"cannot start a process on this host: {error}\n".encode())
            os.close(output)
            self._send_end(number, CANNOT_START)
            return None
        if pid == 0:
            return self._become(task, host, output)
        setns(self._own_pids, NEWPID)
        os.close(output)
        self._roles[number] = pid
        self.watch(pid, lambda status: self._role_ended(number, status))
        return None

    def _become(
        self, task: channel.Message, host: HostNamespaces, output: int
    ) -> Callable[[], None]:
        """In the child: turn into the role."""
        try:
            os.setsid()
            die_with_parent()
            with open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            host.join()
            self._close_all()
            os.environ.clear()
            os.environ.update(task["env"])
            os.chdir(task["cwd"])
            if "argv" in task:
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                os.execvp(task["argv"][0], task["argv"])
        except OSError as error:
            what = error.filename or (task.get("argv") or [task.get("entry")])[0]
            os.write(2, f"cannot start {what}: {error}\n".encode())
            os._exit(CANNOT_START)
        return lambda: _run_entry(task)

    def _close_all(self) -> None:
        """Close what belongs to the forker, so that nobody takes the role for its other end."""
        self._selector.close()
        self._control.close()
        for descriptor in self._watched:
            os.close(descriptor)
        for host in self._hosts:
            for descriptor in host.descriptors():
                os.close(descriptor)
        os.close(self._own_pids)

    def _reap(self, descriptor: int) -> None:
        pid, on_end = self._watched.pop(descriptor)
        self._selector.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        on_end(os.waitstatus_to_exitcode(status))

    def _role_ended(self, number: int, status: int) -> None:
        del self._roles[number]
        self._send_end(number, status)

    def _send_end(self, number: int, status: int) -> None:
        event = {"event": "ended", "id": number, "status": status, "at": time.monotonic()}
        channel.send(self._control, event)

    def _signal(self, number: int, what: int) -> None:
        pid = self._roles.get(number)
        if pid is None:  # ended meanwhile
            return
        try:
            os.killpg(pid, what)
        except ProcessLookupError:  # so young that it has no group of its own yet
            os.kill(pid, what)


def _run_entry(task: channel.Message) -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    entry.settle_libraries()
    entry.call(task["entry"], task["kwargs"])
