"""What controllers share, such as the weights of a language model, kept from replay to replay."""

from __future__ import annotations

from typing import Any

from rudder.controller import Controller
from rudder.engine import Progress
from rudder.spec import Spec
from rudder.steering.resolve import own_params


class Loaded:
    """Keeps what the last controller that shares anything has loaded; another one replaces it."""

    def __init__(self) -> None:
        self._of: Spec | None = None
        self._what: Any = None

    def of(self, controller: Controller, spec: Spec, progress: Progress) -> Any:
        """What a controller built from ``spec`` shares; None = nothing."""
        if not controller.tags.shared:
            return None
        own = own_params(spec)
        if self._of != own:
            self._of = self._what = None  # its memory is needed first
            self._what = controller.load(progress)
            self._of = own
        return self._what
