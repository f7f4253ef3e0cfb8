"""The two ways to reach an agent: a command's pipes, and a connection that the agent has opened."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from rudder.errors import ClusterError

_SECONDS_TO_END = 5.0
_TAIL_BYTES = 2000


class Stream(ABC):
    """Bytes to and from an agent."""

    @abstractmethod
    def read(self, most: int) -> bytes:
        """The next bytes, waiting for them; none when the connection has ended."""

    @abstractmethod
    def write(self, data: bytes, seconds: float) -> int:
        """Send what can be sent at once, waiting so long for room; how many bytes that was.

        Raises:
            ConnectionError: nobody reads any more.
        """

    @abstractmethod
    def finish(self) -> None:
        """Let the agent see the end of what comes in, and wait a little for it to end."""

    @abstractmethod
    def kill(self) -> None:
        """Cut the connection: reading ends."""

    @abstractmethod
    def status(self) -> int | None:
        """After the end: with what status the command ended, if there is one."""

    @abstractmethod
    def last_words(self) -> str:
        """What was said beside the stream."""

    @abstractmethod
    def close(self) -> None:
        """Free the descriptors; nobody uses them any more."""


class CommandStream(Stream):
    """The pipes of a command that reaches the agent: ssh, srun.

    Args:
        env: its environment; None = this process's.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._errors = os.memfd_create("rudder-agent-errors")
        self._popen = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=None if env is None else dict(env),
            start_new_session=True,  # Ctrl-C reaches the launcher alone, which ends the rest
        )
        if self._popen.stdin is None or self._popen.stdout is None:
            raise ClusterError(f"no pipe to {command[0]}")  # Popen was asked for both
        self._pipes = (self._popen.stdin, self._popen.stdout)
        self._in, self._out = (pipe.fileno() for pipe in self._pipes)
        os.set_blocking(self._in, False)

    @property
    def pid(self) -> int:
        """Of the command."""
        return self._popen.pid

    def read(self, most: int) -> bytes:
        return os.read(self._out, most)

    def write(self, data: bytes, seconds: float) -> int:
        select.select([], [self._in], [], seconds)
        try:
            return os.write(self._in, data)
        except BlockingIOError:
            return 0

    def finish(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._pipes[0].close()
        try:
            self._popen.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.kill()
            self._popen.wait()

    def kill(self) -> None:
        if self._popen.poll() is None:
            os.killpg(self._popen.pid, signal.SIGKILL)

    def status(self) -> int | None:
        return self._popen.wait()

    def last_words(self) -> str:
        size = os.fstat(self._errors).st_size
        text = os.pread(self._errors, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        return text.decode(errors="replace").strip()

    def close(self) -> None:
        self._pipes[1].close()
        os.close(self._errors)


class SocketStream(Stream):
    """A connection that a process on the host has opened, which has become the agent."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        link.setblocking(True)

    def read(self, most: int) -> bytes:
        try:
            return self._link.recv(most)
        except ConnectionError:
            return b""

    def write(self, data: bytes, seconds: float) -> int:
        select.select([], [self._link], [], seconds)
        try:
            return self._link.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def finish(self) -> None:
        with contextlib.suppress(OSError):  # the other side has closed it
            self._link.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        with contextlib.suppress(OSError):  # likewise
            self._link.shutdown(socket.SHUT_RDWR)

    def status(self) -> int | None:
        return None

    def last_words(self) -> str:
        return ""

    def close(self) -> None:
        self._link.close()
