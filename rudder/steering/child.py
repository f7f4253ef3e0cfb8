"""The process of a controller: JSON lines in, JSON lines out. Run by ``process.py`` only.

Requests are ``{"op": "reset", "spec", "plugins", "task"}`` and ``{"op": "decide", "observation"}``;
replies ``{}`` or ``{"error"}``, and ``{"decision"}``. End of input ends the process, even while the
controller is busy: the trainer is gone or has given up.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any

from rudder.controller import Controller
from rudder.observation import Observation, Task
from rudder.plugins import PluginFile, load_files
from rudder.registries import CONTROLLERS

GRACE_S = 1.0
"""Seconds that the controller has to close after the end of input."""


def main() -> None:
    # Replies go to a private copy of standard output; whatever a library prints goes to the log.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(sys.stdin, requests), daemon=True)
    reader.start()
    controller: Controller | None = None
    try:
        while (line := requests.get()) is not None:
            request = json.loads(line)
            if request["op"] == "reset":
                controller, reply = _reset(request)
            elif controller is None:
                reply = {"error": "asked before it was reset"}
            else:
                decision = controller.decide(Observation.from_dict(request["observation"]))
                reply = {"decision": dataclasses.asdict(decision)}
            replies.write(json.dumps(reply) + "\n")
            replies.flush()
    finally:
        if controller is not None:
            controller.close()


def _reset(request: Mapping[str, Any]) -> tuple[Controller | None, dict[str, Any]]:
    controller: Controller | None = None
    try:
        load_files([PluginFile(**plugin) for plugin in request["plugins"]])
        controller = CONTROLLERS.build(request["spec"])
        controller.reset(Task.from_dict(request["task"]))
    except Exception as error:  # noqa: BLE001 - whatever it is, the trainer reports it
        if controller is not None:
            controller.close()
        return None, {"error": f"{type(error).__name__}: {error}"}
    return controller, {}


def _read(stream: IO[str], requests: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        requests.put(line)
    requests.put(None)
    timer = threading.Timer(GRACE_S, os._exit, args=(0,))
    timer.daemon = True  # a controller that closes in time need not wait for it
    timer.start()


if __name__ == "__main__":
    main()
