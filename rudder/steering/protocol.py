"""What trainers and processes with controllers say to each other: one JSON object a line.

Requests are ``{"op": "reset", "spec", "plugins", "task"}`` and ``{"op": "decide", "observation"}``;
replies ``{}`` or ``{"error"}``, and ``{"decision"}``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rudder.controller import Controller
from rudder.errors import out_of_memory
from rudder.observation import Observation, Task
from rudder.plugins import PluginFile, load_files
from rudder.spec import Spec

Build = Callable[[Mapping[str, Any]], Controller]
OUT_OF_MEMORY = 12
"""Exit status of a process that ended itself for want of memory (as ``errno.ENOMEM``)."""


def reset_request(spec: Spec, plugins: Sequence[PluginFile], task: Task) -> dict[str, Any]:
    """Asks for a controller, reset for a task."""
    return {
        "op": "reset",
        "spec": spec.to_dict(),
        "plugins": [{"path": p.path, "sha256": p.sha256} for p in plugins],
        "task": task.to_dict(),
    }


class Session:
    """Answers the requests of one trainer.

    Args:
        build: makes a controller from its spec as JSON, not reset.

    Attributes:
        exhausted: memory ran out. What was allocated so far stays allocated: the process does best
            to end, with the status :data:`OUT_OF_MEMORY`, so that a fresh one stands in for it.
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self.exhausted = False
        self._controller: Controller | None = None

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a request; a controller that cannot be reset is told, not raised."""
        if request["op"] == "reset":
            return self._reset(request)
        if self._controller is None:
            return {"error": "asked before it was reset"}
        decision = self._controller.decide(Observation.from_dict(request["observation"]))
        if decision.outcome == "error" and (decision.details or {}).get("out_of_memory"):
            self.exhausted = True
        return {"decision": dataclasses.asdict(decision)}

    def close(self) -> None:
        """End the controller."""
        controller, self._controller = self._controller, None
        if controller is not None:
            controller.close()

    def _reset(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.close()
        controller: Controller | None = None
        try:
            load_files([PluginFile(**plugin) for plugin in request["plugins"]])
            controller = self._build(request["spec"])
            controller.reset(Task.from_dict(request["task"]))
        except Exception as error:  # noqa: BLE001 - whatever it is, the trainer reports it
            if controller is not None:
                controller.close()
            self.exhausted = out_of_memory(error)
            return {"error": f"{type(error).__name__}: {error}"}
        self._controller = controller
        return {}
