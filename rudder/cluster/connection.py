"""The launcher's end of one agent: sends, and listens."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from rudder.cluster.frames import OPENING, Decoder, Message, encode
from rudder.cluster.hosts import Host, RoleProcess
from rudder.cluster.roles import Role
from rudder.cluster.shipped import program
from rudder.cluster.streams import Stream
from rudder.errors import ClusterError

SILENCE_S = 20.0
"""A host that has said nothing for so long has stopped answering; it is asked every second."""
_SECONDS_TO_TAKE = 15.0
_POLL_SECONDS = 0.5
_SECONDS_TO_END = 5.0
_READ_BYTES = 1 << 18
_CHATTER_BYTES = 1 << 16


class RemoteProcess(RoleProcess):
    """A role on a remote host."""

    def __init__(self, link: Connection, role: Role, number: int, output: int, writer: int) -> None:
        self.role = role
        self.output = output
        self.number = number
        self.writer = writer
        os.set_blocking(writer, False)
        self._link = link
        self._status: int | None = None
        self._ended_at = 0.0

    def poll(self) -> int | None:
        return self._status

    @property
    def ended_at(self) -> float:
        return self._ended_at

    def send_signal(self, number: int) -> None:
        if self._status is None:
            with contextlib.suppress(ClusterError):  # the host is lost, and the role with it
                self._link.send({"do": "signal", "id": self.number, "signal": int(number)})

    def ended(self, status: int) -> None:
        """Called by the connection, once."""
        self._ended_at = time.monotonic()
        self._status = status

    def wrote(self, data: bytes, wanted: Callable[[], bool]) -> None:
        """Pass output on, as long as it is wanted; it is dropped where nobody reads any more."""
        with contextlib.suppress(BrokenPipeError):
            while data and self.writer >= 0 and wanted():
                try:
                    data = data[os.write(self.writer, data) :]
                except BlockingIOError:
                    select.select([], [self.writer], [], _POLL_SECONDS)

    def closed(self) -> None:
        """There will be no more output. Called by the thread that writes it."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1


class Connection:
    """One agent.

    Args:
        host: where it is.
        stream: to the agent's bootstrap, ``shipped.BOOTSTRAP``; closed with the connection.
        config: as :func:`rudder.cluster.agent.main` wants it.

    Attributes:
        failure: what has become of the connection, if it is lost; said once.
        said: what the command wrote to stderr, when it was lost.
        refused: why the agent could not isolate its roles; None where it could.
    """

    def __init__(self, host: Host, stream: Stream, config: Mapping[str, Any]) -> None:
        self.host = host
        self.failure: str | None = None
        self.said = ""
        self.status: int | None = None
        self.refused: str | None = None
        self._lock = threading.Lock()
        self._changed = threading.Condition()
        self._up = False
        self._closing = False
        self._delivering = False
        self._numbers = 0
        self._replies: dict[int, Message] = {}
        self._processes: dict[int, RemoteProcess] = {}
        self._heard = time.monotonic()
        self._stream = stream
        self._reader = threading.Thread(target=self._read, name=f"rudder-{host.name}", daemon=True)
        self._reader.start()
        with contextlib.suppress(ClusterError):  # the reader says better what happened
            self._write(program(config))

    def wait_up(self, seconds: float) -> None:
        """Wait until the agent runs, or cannot be reached; then ``failure`` tells."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._up or self.failure is not None, seconds)
        if not done:
            self._abandon("no agent has come up there in time")

    def ask(self, request: str, seconds: float, **arguments: Any) -> Any:
        """Let the agent do something and wait for the answer.

        Raises:
            ClusterError: it failed, or took longer, or the host is lost.
        """
        with self._changed:
            self._numbers += 1
            number = self._numbers
        self.send({"do": request, "id": number, "arguments": arguments})
        with self._changed:
            done = self._changed.wait_for(
                lambda: number in self._replies or self.failure is not None, seconds
            )
            reply = self._replies.pop(number, {})
        if "value" in reply:
            return reply["value"]
        what = reply.get("error") or self.failure
        if not done:
            what = f"no answer within {seconds:.0f} s"
        raise ClusterError(f"{self.host}: {request} failed: {what}")

    def spawn(self, role: Role, message: Message, output: int, writer: int) -> RemoteProcess:
        """Start a role.

        Raises:
            ClusterError: the host is lost.
        """
        with self._changed:
            self._numbers += 1
            process = RemoteProcess(self, role, self._numbers, output, writer)
            self._processes[process.number] = process
        self.send({"do": "spawn", "id": process.number, **message})
        return process

    def send(self, message: Message) -> None:
        """Send one frame.

        Raises:
            ClusterError: the host is lost, or takes nothing in.
        """
        if self.failure is not None:
            raise ClusterError(self.failure)
        self._write(encode(message))

    def check(self, since: float) -> None:
        """Ask for a sign of life; without one for too long, counted from ``since``, it is lost."""
        if self.failure is not None or not self._up or self._delivering:
            return
        if time.monotonic() - max(self._heard, since) > SILENCE_S:
            self._abandon(f"it has stopped answering: nothing was heard for {SILENCE_S:.0f} s")
            return
        with contextlib.suppress(ClusterError):  # the reader notices
            self.send({"do": "ping"})

    def close(self) -> None:
        """End the agent, which ends its roles: it ends with its standard input."""
        if self._closing:
            return
        self._closing = True
        with self._lock:
            self._stream.finish()
        self._lose("the cluster was closed")
        self._reader.join(_SECONDS_TO_END)
        if self._reader.is_alive():
            self._stream.kill()
            self._reader.join()
        self._stream.close()

    # Inside.

    def _write(self, data: bytes) -> None:
        deadline = time.monotonic() + _SECONDS_TO_TAKE
        with self._lock:
            while data and not self._closing:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ClusterError(f"{self.host} takes nothing in")
                try:
                    data = data[self._stream.write(data, left) :]
                except ConnectionError as error:
                    raise ClusterError(f"{self.host}: the connection has ended") from error

    def _read(self) -> None:
        """The thread that listens; ends with the connection."""
        decoder = Decoder()
        try:
            rest = self._skip_chatter()
            while rest:
                self._heard = time.monotonic()
                for message, payload in decoder.feed(rest):
                    self._take(message, payload)
                rest = self._stream.read(_READ_BYTES)
        except (ValueError, KeyError) as error:
            self._abandon(f"what it sends makes no sense: {error}")
        self.status = self._stream.status()
        self._lose("the cluster was closed" if self._closing else "the connection ended")
        for process in list(self._processes.values()):
            process.closed()

    def _skip_chatter(self) -> bytes:
        """Read until the agent begins to speak; what it has said by then."""
        chatter = b""
        while data := self._stream.read(_READ_BYTES):
            chatter += data
            _, opening, rest = chatter.partition(OPENING)
            if opening:
                return rest or self._stream.read(_READ_BYTES)
            if len(chatter) > _CHATTER_BYTES:
                raise ValueError("a login script there talks without end")
        return b""

    def _take(self, message: Message, payload: bytes) -> None:
        event = message["event"]
        if event == "output":
            self._delivering = True
            self._processes[message["id"]].wrote(payload, lambda: self.failure is None)
            self._delivering = False
            self._heard = time.monotonic()
        elif event == "closed":
            self._processes[message["id"]].closed()
        elif event == "ended":
            self._processes[message["id"]].ended(message["status"])
        elif event == "hello":
            self.refused = message["refused"]
            self._up = True
        elif event == "reply":
            with self._changed:
                self._replies[message["id"]] = message
        with self._changed:
            self._changed.notify_all()

    def _lose(self, what: str) -> None:
        """The first loss is the one that counts; all roles have ended with it."""
        with self._changed:
            if self.failure is None:
                if not self._closing:
                    self.said = self._stream.last_words()
                status = "" if self.status is None else f" (exit status {self.status})"
                words = f"; it said: {self.said}" if self.said else ""
                self.failure = f"{self.host}: {what}{status}{words}"
            for process in self._processes.values():
                if process.poll() is None:
                    process.ended(-signal.SIGKILL)
            self._changed.notify_all()

    def _abandon(self, what: str) -> None:
        self._lose(what)
        self._stream.kill()
