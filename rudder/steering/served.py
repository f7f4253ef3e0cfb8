"""A controller in a process that serves all trainers of a host, from a trainer's side."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rudder.controller import Controller
from rudder.decision import Decision
from rudder.errors import ControllerError
from rudder.observation import Observation, Task
from rudder.plugins import PluginFile
from rudder.spec import Spec
from rudder.steering.protocol import reset_request

_log = logging.getLogger(__name__)

_RETRY_S = 0.1


class ServedController(Controller):
    """Connects to :class:`rudder.steering.service.ControllerService` and asks it.

    A lost connection makes that answer an ``error``; the next question connects anew, to the same
    process or to the one that the launcher has started in its place.

    Args:
        socket_path: of the service.
        spec: resolved spec of the controller.
        plugins: plug-in files that the service loads first, checked by hash.
        start_timeout_s: seconds until the controller is reset, connecting included.
        answer_timeout_s: seconds after which a silent service is taken to hang.
        again_timeout_s: seconds that connecting anew may take, during a run.
    """

    def __init__(
        self,
        socket_path: Path,
        spec: Spec,
        plugins: Sequence[PluginFile] = (),
        *,
        start_timeout_s: float = 600.0,
        answer_timeout_s: float = 90.0,
        again_timeout_s: float = 1.0,
    ) -> None:
        self._path = socket_path
        self._spec = spec
        self._plugins = tuple(plugins)
        self._start_timeout_s = start_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._again_timeout_s = again_timeout_s
        self._task: Task | None = None
        self._link: socket.socket | None = None
        self._rest = b""

    def kill(self) -> None:
        """Cut the connection; whoever waits for an answer gets an error. From any thread."""
        link = self._link
        if link is not None:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def _reset(self, task: Task) -> None:
        self._close()
        self._task = task
        self._connect(self._start_timeout_s)

    def _decide(self, observation: Observation) -> Decision:
        if self._link is None:
            self._connect(self._again_timeout_s)
        request = {"op": "decide", "observation": observation.to_dict()}
        return Decision(**self._exchange(request, self._answer_timeout_s)["decision"])

    def _close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _connect(self, timeout_s: float) -> None:
        if self._task is None:
            raise ControllerError(f"{self._spec} was asked before it was reset")
        end = time.monotonic() + timeout_s
        while True:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                link.connect(str(self._path))
                break
            except OSError as error:
                link.close()
                if time.monotonic() >= end:
                    raise ControllerError(
                        f"the process of {self._spec} cannot be reached: {error.strerror}"
                    ) from error
                time.sleep(_RETRY_S)
        self._link, self._rest = link, b""
        # A process that has just been started again has loaded what it needs before it listens.
        request = reset_request(self._spec, self._plugins, self._task)
        reply = self._exchange(request, self._start_timeout_s)
        if "error" in reply:
            self._close()
            raise ControllerError(str(reply["error"]))

    def _exchange(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send one line and return the line that answers it."""
        link = self._link
        if link is None:
            raise ControllerError(f"the process of {self._spec} is not connected")
        try:
            link.settimeout(timeout_s)
            link.sendall(json.dumps(request).encode() + b"\n")
            while b"\n" not in self._rest:
                received = link.recv(1 << 16)
                if not received:
                    raise ConnectionResetError
                self._rest += received
            line, _, self._rest = self._rest.partition(b"\n")
            reply: dict[str, Any] = json.loads(line)
        except (OSError, ValueError) as error:
            self._close()
            what = "hangs" if isinstance(error, TimeoutError) else "died"
            raise ControllerError(f"the process of {self._spec} {what}") from error
        return reply
