"""One process per host that serves its trainers with controllers of one kind, and its keeper."""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from rudder.errors import ControllerError
from rudder.identity import NOTE_VERSION, Process
from rudder.plugins import PluginFile
from rudder.spec import Spec
from rudder.steering.protocol import OUT_OF_MEMORY

_log = logging.getLogger(__name__)

SOCKET = "controller.sock"
NOTE = "owner.json"
"""In the socket's folder: whose it is, for when the owner is killed (``rudder/leftovers.py``)."""

_PING_S = 2.0
"""Seconds between looks at the process."""
_SILENCE_S = 10.0
"""A process that does not answer a ping for so long is taken to hang, or to be stopped."""
_END_S = 1.0
"""What an ending process may take until it is gone."""


class ControllerService:
    """Starts the process, waits until it has loaded, and starts it again if it dies or hangs.

    >>> with ControllerService(spec, plugins, log=folder / "controller.log") as service:
    ...     ServedController(service.socket, spec)

    Trainers go on meanwhile: their questions are answered by nobody, which counts as errors.

    Args:
        spec: resolved spec of the controller, its own parameters only.
        plugins: plug-in files that the process loads first, checked by hash.
        log: file that its output is appended to; None = this process's own.
        progress: called with phase and share while it loads.
        start_timeout_s: seconds that loading may take.
        answer_timeout_s: seconds after which an answer in work is taken to hang.
        restarts: how often the process is started again.

    Attributes:
        socket: path of the Unix socket, short enough for any home.
        events: counts: ``deaths``, ``out_of_memory`` (ended for want of memory that it noticed
            itself; a kill by the kernel is a death), ``hangs``, ``restarts``; and ``loaded_s``,
            seconds of loading.

    Raises:
        ControllerError: by ``with``: what the controllers share could not be loaded.
    """

    def __init__(
        self,
        spec: Spec,
        plugins: Sequence[PluginFile] = (),
        *,
        log: Path | None = None,
        progress: Callable[[str, float], None] = lambda phase, share: None,
        start_timeout_s: float = 600.0,
        answer_timeout_s: float = 90.0,
        restarts: int = 2,
    ) -> None:
        self._spec, self._plugins = spec, tuple(plugins)
        self._log, self._progress = log, progress
        self._start_timeout_s, self._answer_timeout_s = start_timeout_s, answer_timeout_s
        self._restarts = restarts
        self._process: subprocess.Popen[str] | None = None
        self._folder: Path | None = None
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="rudder-service", daemon=True)
        self.events: dict[str, float] = {
            "deaths": 0, "out_of_memory": 0, "hangs": 0, "restarts": 0, "loaded_s": 0.0,
        }  # fmt: skip

    @property
    def socket(self) -> Path:
        if self._folder is None:
            raise ControllerError(f"the process of {self._spec} was not started")
        return self._folder / SOCKET

    @property
    def pid(self) -> int | None:
        """Of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> ControllerService:
        # mkdtemp: readable by this user only, and a path of few characters.
        self._folder = Path(tempfile.mkdtemp(prefix="rudder-"))
        try:
            self._start()
        except BaseException:
            self._end()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._end()
        self._keeper.join()
        self._end()  # one that the keeper was just starting
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        with contextlib.ExitStack() as stack:
            log: IO[Any] | None = None
            if self._log is not None:
                self._log.parent.mkdir(parents=True, exist_ok=True)
                log = stack.enter_context(self._log.open("a"))
            process = subprocess.Popen(
                [sys.executable, "-I", "-m", "rudder.steering.serving"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )
        self._process = process
        self._note(process.pid)
        order = {
            "spec": self._spec.to_dict(),
            "plugins": [{"path": p.path, "sha256": p.sha256} for p in self._plugins],
            "socket": str(self.socket),
        }
        if process.stdin is None or process.stdout is None:
            raise ControllerError("the process has no pipes")
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            _log.debug("the process of %s ended before it was told what to load", self._spec)
        words: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(process.stdout, words), daemon=True).start()
        end = time.monotonic() + self._start_timeout_s
        while True:
            try:
                line = words.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty as error:
                raise ControllerError(
                    f"{self._spec} had not loaded after {self._start_timeout_s:g} s"
                ) from error
            if line is None:
                where = "" if self._log is None else f"; see {self._log}"
                raise ControllerError(
                    f"the process of {self._spec} died while loading, exit status "
                    f"{process.wait()}{where}"
                )
            word = json.loads(line)
            if "error" in word:
                raise ControllerError(str(word["error"]))
            if "loaded_s" in word:
                self.events["loaded_s"] = word["loaded_s"]
                return
            self._progress(word["phase"], word["share"])

    def _note(self, pid: int) -> None:
        note = self.socket.with_name(NOTE)
        processes = {"owner": Process.own(), "process": Process.of(pid)}
        told = {name: asdict(process) for name, process in processes.items()}
        note.write_text(json.dumps({"version": NOTE_VERSION, **told}))

    def _keep(self) -> None:
        """Look after the process until the end."""
        while not self._closing.wait(_PING_S):
            process = self._process
            if process is None:
                return
            if process.poll() == OUT_OF_MEMORY:
                self.events["out_of_memory"] += 1
                _log.warning("the process of %s ran out of memory", self._spec)
            elif process.poll() is not None:
                self.events["deaths"] += 1
                _log.warning("the process of %s died: %s", self._spec, process.returncode)
            elif not self._answers():
                self.events["hangs"] += 1
                _log.warning("the process of %s hangs and is ended", self._spec)
            else:
                continue
            self._end()
            if self.events["restarts"] >= self._restarts or self._closing.is_set():
                _log.error("the process of %s is not started again", self._spec)
                return
            self.events["restarts"] += 1
            try:
                self._start()
            except ControllerError as error:
                _log.error("%s", error)
                self._end()
                return

    def _answers(self) -> bool:
        """Is it alive, and has not been at one answer for too long?"""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            try:
                link.settimeout(_SILENCE_S)
                link.connect(str(self.socket))
                link.sendall(b'{"op": "ping"}\n')
                with link.makefile() as replies:
                    busy_s: float = json.loads(replies.readline())["busy_s"]
            except TimeoutError:
                return self._ended(0.0)  # dead: told as such, by who looks next
            except (OSError, ValueError, KeyError):
                # A process that is killed hangs up before its status can be asked for.
                return self._ended(_END_S)
        return busy_s < self._answer_timeout_s

    def _ended(self, within_s: float) -> bool:
        process = self._process
        if process is None:
            return True
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _read(stream: IO[str], words: queue.SimpleQueue[str | None]) -> None:
    with stream:
        for line in stream:
            words.put(line)
    words.put(None)
