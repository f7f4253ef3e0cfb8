"""What trainers and processes with controllers say to each other: one JSON object a line.

Requests are ``{"op": "reset", "spec", "plugins", "task"}`` and ``{"op": "decide", "observation"}``;
replies ``{}`` or ``{"error"}``, and ``{"decision"}``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rudder.controller import Controller
from rudder.observation import Observation, Task
from rudder.plugins import PluginFile, load_files
from rudder.spec import Spec

Build = Callable[[Mapping[str, Any]], Controller]


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
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self._controller: Controller | None = None

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a request; a controller that cannot be reset is told, not raised."""
        if request["op"] == "reset":
            return self._reset(request)
        if self._controller is None:
            return {"error": "asked before it was reset"}
        decision = self._controller.decide(Observation.from_dict(request["observation"]))
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
            return {"error": f"{type(error).__name__}: {error}"}
        self._controller = controller
        return {}
