"""The contract of a controller: what steers the buffer of one trainer."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudder.decision import Decision
from rudder.errors import ControllerError, out_of_memory
from rudder.observation import Observation, Task

if TYPE_CHECKING:
    from rudder.cluster.doctor import Check

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a controller needs and how it behaves; selects the conformance checks that apply.

    Attributes:
        fitted_model: needs a fitted model, named by the parameter ``model``.
        stochastic: its decisions depend on the seed.
        repeatable: the same seed and observations give the same decisions.
        llm: asks a language model.
        own_process: wants a process of its own rather than a thread of the trainer.
        shared: one process can serve all trainers of a host; what ``load`` returns is then
            loaded once.
        reads_seconds: its decisions depend on measured seconds, so a replay may differ.
        nested: parameters that hold the specs of other controllers.
        paths: parameters that name a file or directory, or are empty; trainers get them absolute.
        replay_only: needs what only a recorded trace has, such as its future.
        deadline_s: seconds after which an open question counts as a timeout.
    """

    fitted_model: bool = False
    stochastic: bool = False
    repeatable: bool = True
    llm: bool = False
    own_process: bool = False
    shared: bool = False
    reads_seconds: bool = False
    nested: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    replay_only: bool = False
    deadline_s: float = 30.0


class Controller:
    """Decides, for the next minibatch, whether stale rows are replaced.

    Subclasses override :meth:`_decide` and, where needed, :meth:`_reset` and :meth:`_close`. The
    constructor takes the parameters of the spec as keyword arguments and stores them; heavy state
    (weights, processes) loads in :meth:`_reset`. Before ``reset`` a controller can be pickled.
    A controller sees only the task and the observations: no engine, no file, no global.

    >>> class Sometimes(Controller):
    ...     def _decide(self, observation):
    ...         return Decision(replace=observation.window.hit_rate < 0.5)
    """

    # Of the class; one that wraps another controller may set its own.
    tags: Capabilities = Capabilities()

    def reset(self, task: Task) -> None:
        """Start a run. May be called again for another run.

        Raises:
            ControllerError: what the controller needs is missing or broken.
        """
        self._reset(task)

    def decide(self, observation: Observation) -> Decision:
        """Answer one observation; never raises.

        An exception becomes the outcome ``error``, an answer that breaks the contract ``invalid``;
        both keep the buffer. ``latency_s`` is filled in. An ``error`` for want of memory says so in
        its ``details``, as ``out_of_memory``.
        """
        start = time.perf_counter()
        try:
            decision = self._decide(observation)
        except Exception as error:  # noqa: BLE001 - whatever a controller raises, training goes on
            _log.warning("%s failed on %d", type(self).__name__, observation.index, exc_info=True)
            decision = Decision.keep(f"{type(error).__name__}: {error}", outcome="error")
            if out_of_memory(error):
                decision = dataclasses.replace(decision, details={"out_of_memory": True})
        else:
            try:
                if not isinstance(decision, Decision):
                    raise ControllerError(f"answered {decision!r} instead of a Decision")
                decision.validated()
            except ControllerError as error:
                decision = Decision.keep(str(error), outcome="invalid")
        if decision.outcome != "valid" and decision.replace:
            decision = dataclasses.replace(decision, replace=False)
        return dataclasses.replace(decision, latency_s=time.perf_counter() - start)

    def close(self) -> None:
        """Release what ``reset`` took. Safe to call twice, and without ``reset``."""
        self._close()

    def load(self, progress: Callable[[str, float], None]) -> Any:
        """Load what all trainers of a host can share, such as weights; once, before any reset.

        Args:
            progress: called with what is being loaded and the share of it that is done.

        Returns:
            What :meth:`adopt` of each trainer's controller is given; None = nothing is shared.
        """
        return self._load(progress)

    def adopt(self, loaded: Any) -> None:
        """Take what :meth:`load` of a controller with the same spec returned, before ``reset``."""
        self._adopt(loaded)

    def reads(self) -> list[Path]:
        """Files that shape its answers and that no parameter holds, such as a prompt's template.

        Needs no ``reset``; with other content in them it counts as another controller.
        """
        return self._reads()

    def needs(self) -> list[Check]:
        """What this machine has of what the controller needs, such as memory for its model.

        Needs no ``reset``; empty = nothing but Rudder.
        """
        return list(self._needs())

    def preview(self, task: Task, observations: Sequence[Observation]) -> dict[str, str]:
        """What it would send to a model for the last of some observations of one run.

        Needs no ``reset``, and a model only where that is at hand.

        Returns:
            Texts by name; empty = it asks no model.
        """
        return self._preview(task, observations)

    def _load(self, progress: Callable[[str, float], None]) -> Any:
        """Hook: load what can be shared."""

    def _adopt(self, loaded: Any) -> None:
        """Hook: keep what was loaded; ``_reset`` then need not load it."""

    def _reads(self) -> list[Path]:
        """Hook: name them."""
        return []

    def _needs(self) -> Iterable[Check]:
        """Hook: look at the machine."""
        return ()

    def _preview(self, task: Task, observations: Sequence[Observation]) -> dict[str, str]:
        """Hook: write a prompt, send none."""
        return {}

    def _reset(self, task: Task) -> None:
        """Hook: load heavy state, forget the previous run."""

    def _decide(self, observation: Observation) -> Decision:
        raise TypeError(f"{type(self).__name__} must override _decide(observation)")

    def _close(self) -> None:
        """Hook: release what ``_reset`` took."""
