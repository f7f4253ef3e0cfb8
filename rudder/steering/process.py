"""A controller in a process of its own, behind the interface of a controller.

The process runs :mod:`rudder.steering.child`, builds the controller from its spec, and answers JSON
lines over pipes. It ends when its input ends, and so with the trainer, however that ends.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rudder.controller import Controller
from rudder.decision import Decision
from rudder.errors import ControllerError
from rudder.observation import Observation, Task
from rudder.plugins import PluginFile
from rudder.spec import Spec
from rudder.steering.protocol import reset_request

_log = logging.getLogger(__name__)


class ProcessController(Controller):
    """Starts a process in ``reset`` and asks it in ``decide``.

    A process that dies or hangs makes that answer an ``error``; the next question starts another
    one, at most ``restarts`` times in a run.

    Args:
        spec: resolved spec of the controller.
        plugins: plug-in files that the process loads first, checked by hash.
        start_timeout_s: seconds from start until the controller is reset.
        answer_timeout_s: seconds after which a silent process is taken to hang, and ended.
        restarts: how often a process is replaced by a new one.
    """

    def __init__(
        self,
        spec: Spec,
        plugins: Sequence[PluginFile] = (),
        *,
        start_timeout_s: float = 600.0,
        answer_timeout_s: float = 90.0,
        restarts: int = 2,
    ) -> None:
        self._spec = spec
        self._plugins = tuple(plugins)
        self._start_timeout_s = start_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._restarts = restarts
        self._restarts_left = restarts
        self._task: Task | None = None
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str | None] | None = None

    def kill(self) -> None:
        """End the process at once; whoever waits for its answer gets an error. From any thread."""
        process = self._process
        if process is not None:
            process.kill()

    def peak_bytes(self) -> int | None:
        """Most memory that its process has held at once (resident); None = none runs."""
        process = self._process
        if process is None:
            return None
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except FileNotFoundError:
            return None
        peak = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        return None if peak is None else 1024 * int(peak[1])  # a process that has ended has none

    def _reset(self, task: Task) -> None:
        self._close()
        self._task = task
        self._restarts_left = self._restarts
        self._start()

    def _decide(self, observation: Observation) -> Decision:
        if self._process is None:
            if not self._restarts_left:
                raise ControllerError(
                    f"the process of {self._spec} died and was restarted {self._restarts} times"
                )
            self._restarts_left -= 1
            _log.warning("starting the process of %s again", self._spec)
            self._start()
        reply = self._exchange(
            {"op": "decide", "observation": observation.to_dict()}, self._answer_timeout_s
        )
        return Decision(**reply["decision"])

    def _close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            try:
                process.stdin.close()
            except BrokenPipeError:
                _log.debug("the process of %s was gone already", self._spec)
        try:
            process.wait(2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> None:
        if self._task is None:
            raise ControllerError(f"{self._spec} was asked before it was reset")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-m", "rudder.steering.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._lines = queue.SimpleQueue()
        if self._process.stdout is not None:
            threading.Thread(
                target=_read,
                args=(self._process.stdout, self._lines),
                name="rudder-controller-pipe",
                daemon=True,
            ).start()
        request = reset_request(self._spec, self._plugins, self._task)
        try:
            reply = self._exchange(request, self._start_timeout_s)
        except ControllerError:
            self._end()
            raise
        if "error" in reply:
            self._end()
            raise ControllerError(str(reply["error"]))

    def _exchange(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send one line and return the line that answers it, both JSON objects."""
        process, lines = self._process, self._lines
        if process is None or lines is None or process.stdin is None:
            raise ControllerError(f"the process of {self._spec} does not run")
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = lines.get(timeout=timeout_s)
        except (BrokenPipeError, queue.Empty) as error:
            what = "hangs" if isinstance(error, queue.Empty) else "died"
            self._end()
            raise ControllerError(f"the process of {self._spec} {what}") from error
        if line is None:
            code = self._end()
            raise ControllerError(f"the process of {self._spec} died with exit status {code}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _end(self) -> int | None:
        """Make sure that a process which died or hangs is gone; returns its exit status."""
        process, self._process = self._process, None
        if process is None:
            return None
        try:
            return process.wait(0.5)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _read(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(None)
