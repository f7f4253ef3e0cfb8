"""One process per remote host: starts roles there, passes their output on, ends with its launcher.

Sent to the host as source and run by an interpreter that the hosts file names (``shipped.py``); it
needs nothing installed but Python. Requests come in on standard input, events go out on standard
output, as frames. When standard input ends, or nothing has come for a while, everything that was
started ends: so a launcher that is killed and a connection that is lost leave nothing behind.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rudder.cluster.arrays import PREFIX, ArrayNote
from rudder.cluster.frames import OPENING, Decoder, Message, encode
from rudder.cluster.isolation import isolate
from rudder.cluster.namespaces import adopt_orphans, die_with_parent
from rudder.cluster.processes import end_descendants, end_everybody
from rudder.cluster.survey import counters, digests, free_ports, survey

_READ_BYTES = 1 << 16
_MOST_QUEUED = 4 << 20
"""Bytes on their way to the launcher, beyond which no more output is read."""
_CANNOT_START = 127
_TICK_SECONDS = 0.5
_SHARED_MEMORY = Path("/dev/shm")
_HANDLED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP)


def main(config: Message) -> int:
    """Serve one launcher; the exit status.

    Args:
        config: ``isolated`` (try to isolate), ``silence_s`` (seconds without a word from the
            launcher after which it is taken to be gone), ``env`` (variables of every role).
    """
    refused = isolate() if config["isolated"] else "not asked for"
    return _Agent(config, refused).serve()


class _Agent:
    def __init__(self, config: Message, refused: str | None) -> None:
        self._config = config
        self._isolated = refused is None
        self._refused = refused
        self._selector = selectors.DefaultSelector()
        self._decoder = Decoder()
        self._out: deque[bytes] = deque([OPENING])
        self._queued = 0
        self._paused = False
        self._pids: dict[int, int] = {}
        self._outputs: dict[int, int] = {}
        self._replies: dict[int, tuple[int, bytes]] = {}
        self._heard = time.monotonic()
        self._before = {path.name for path in _SHARED_MEMORY.iterdir()}
        self._arrays = None if self._isolated else ArrayNote(_SHARED_MEMORY)

    def serve(self) -> int:
        """Until the launcher is gone."""
        if not self._isolated:
            adopt_orphans()
        woken, wake = os.pipe()
        for descriptor in (wake, 0, 1):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        for ending in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(ending, _leave)
        self._selector.register(0, selectors.EVENT_READ, self._hear)
        self._selector.register(woken, selectors.EVENT_READ, lambda: os.read(woken, 512) and None)
        self._send({"event": "hello", "refused": self._refused, "pid": os.getpid()})
        try:
            while time.monotonic() - self._heard < self._config["silence_s"]:
                for key, _ in self._selector.select(_TICK_SECONDS):
                    key.data()
                self._reap()
                self._flush()
                if self._arrays is not None:
                    self._arrays.look()
            return 1
        except EOFError:
            return 0
        except BrokenPipeError:
            return 1
        finally:
            self._clean()

    # To and from the launcher.

    def _hear(self) -> None:
        try:
            data = os.read(0, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise EOFError
        self._heard = time.monotonic()
        for message, _ in self._decoder.feed(data):
            self._answer(message)

    def _answer(self, message: Message) -> None:
        request, number = message["do"], message.get("id", 0)
        if request == "spawn":
            self._spawn(message)
        elif request == "signal":
            self._signal(number, message["signal"])
        elif request == "ping":
            self._send({"event": "pong"})
        elif request == "clean":
            self._clean()
            self._send({"event": "reply", "id": number, "value": None})
        else:
            self._work(number, _WORK[request], message["arguments"])

    def _send(self, message: Message, payload: bytes = b"") -> None:
        frame = encode(message, payload)
        self._out.append(frame)
        self._queued += len(frame)

    def _flush(self) -> None:
        """Write what the pipe takes; read no more output while too much waits."""
        while self._out:
            try:
                written = os.write(1, self._out[0])
            except BlockingIOError:
                break
            self._queued -= written
            rest = self._out.popleft()[written:]
            if rest:
                self._out.appendleft(rest)
        writing = 1 in self._selector.get_map()
        if self._out and not writing:
            self._selector.register(1, selectors.EVENT_WRITE, lambda: None)
        elif not self._out and writing:
            self._selector.unregister(1)
        if (self._queued > _MOST_QUEUED) != self._paused:
            self._paused = not self._paused
            for output in self._outputs:
                self._listen(output)

    def _listen(self, output: int) -> None:
        if self._paused:
            self._selector.unregister(output)
        else:
            self._selector.register(output, selectors.EVENT_READ, lambda: self._read(output))

    # Roles and other work.

    def _spawn(self, message: Message) -> None:
        def become() -> None:
            env = {**os.environ, **self._config["env"], **message["env"]}
            os.chdir(message["cwd"])
            os.execvpe(message["argv"][0], message["argv"], env)

        number = message["id"]
        output = self._fork(number, become)
        self._outputs[output] = number
        if not self._paused:
            self._listen(output)

    def _work(self, number: int, function: Callable[..., Any], arguments: Message) -> None:
        """Answer in a child, since it may take long: its output is the reply."""

        def answer() -> None:
            os.write(1, json.dumps({"value": function(**arguments)}).encode())
            os._exit(0)

        output = self._fork(None, answer)
        self._replies[output] = (number, b"")
        self._selector.register(output, selectors.EVENT_READ, lambda: self._gather(output))

    def _fork(self, number: int | None, act: Callable[[], None]) -> int:
        """Let a child act, in a session of its own; a descriptor of its output."""
        output, writer = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)  # the child must not run our handlers
        pid = os.fork()
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            os.close(writer)
            if number is not None:
                self._pids[number] = pid
            return output
        try:
            os.setsid()
            die_with_parent()
            signal.set_wakeup_fd(-1)
            for usual in (*_HANDLED, signal.SIGPIPE):
                signal.signal(usual, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            act()
        except BaseException as error:  # noqa: BLE001 - the child's last handler
            os.write(2, f"cannot start: {type(error).__name__}: {error}\n".encode())
        os._exit(_CANNOT_START)

    def _read(self, output: int) -> None:
        data = os.read(output, _READ_BYTES)
        number = self._outputs[output]
        if data:
            self._send({"event": "output", "id": number}, data)
            return
        self._selector.unregister(output)
        os.close(output)
        del self._outputs[output]
        self._send({"event": "closed", "id": number})

    def _gather(self, output: int) -> None:
        data = os.read(output, _READ_BYTES)
        number, so_far = self._replies[output]
        if data:
            self._replies[output] = (number, so_far + data)
            return
        self._selector.unregister(output)
        os.close(output)
        del self._replies[output]
        try:
            reply = json.loads(so_far)
        except ValueError:
            reply = {"error": so_far.decode(errors="replace").strip()}
        self._send({"event": "reply", "id": number, **reply})

    def _signal(self, number: int, what: int) -> None:
        pid = self._pids.get(number)
        if pid is None:  # it has ended meanwhile
            return
        try:
            os.killpg(pid, what)
        except ProcessLookupError:  # so young that it has no group of its own yet
            os.kill(pid, what)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for number, role in list(self._pids.items()):
                if role == pid:
                    del self._pids[number]
                    code = os.waitstatus_to_exitcode(status)
                    self._send({"event": "ended", "id": number, "status": code})

    def _clean(self) -> None:
        """End whatever was started, and free the shared memory that it has left."""
        if self._isolated:
            end_everybody()
        else:
            end_descendants()
        self._reap()
        for path in _SHARED_MEMORY.iterdir():
            if not (self._isolated or self._ours(path)):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if self._arrays is not None:
            self._arrays.forget()

    def _ours(self, path: Path) -> bool:
        """In a ``/dev/shm`` that others use too: made since the start, and used by nobody."""
        if path.name in self._before or path.name.startswith(PREFIX):
            return False
        if path.lstat().st_uid != os.getuid():
            return False
        return not any(str(path) in maps for maps in _maps_of_this_user())


def _leave(number: int, frame: object) -> None:
    """As if the launcher had gone."""
    raise EOFError


def _maps_of_this_user() -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found.append((folder / "maps").read_text())
            except OSError:  # somebody else's, or gone
                continue
    return found


def _exists(paths: list[str]) -> list[bool]:
    return [Path(path).exists() for path in paths]


def _make(path: str) -> None:
    Path(path).mkdir(parents=True, exist_ok=True)


_WORK: dict[str, Callable[..., Any]] = {
    "survey": survey,
    "counters": counters,
    "digests": digests,
    "exists": _exists,
    "make": _make,
    "ports": free_ports,
}
