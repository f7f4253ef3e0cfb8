"""``timing-oracle``: replaces when what follows, looked up in the trace, is cheaper for it."""

from __future__ import annotations

from typing import Literal, get_args

from rudder.controller import Capabilities
from rudder.decision import Decision
from rudder.errors import ControllerError, SpecError
from rudder.observation import Observation
from rudder.replay.foresight import ForesightController, Future

Objective = Literal["communication", "seconds"]

REPLACE = Decision(replace=True)
KEEP = Decision(replace=False)


class TimingOracle(ForesightController):
    """Bounds what any timing of replacements can reach under a policy and a latency.

    At each question it rolls both answers out over ``horizon`` minibatches. What later questions
    are answered with matters to the worth of the first; two constant schedules stand for it: keep
    always, and replace always. Each branch counts by the better of the two, and the cheaper branch
    is taken; a tie keeps. It steers no real training: it looks the accesses up in the trace.

    Args:
        horizon: minibatches, from the one on at which the answer applies.
        objective: what is cheaper: rows fetched (``communication``) or modelled ``seconds``.

    Raises:
        SpecError: a value out of range.
    """

    tags: Capabilities = Capabilities(replay_only=True)

    def __init__(self, horizon: int = 32, objective: str = "communication") -> None:
        if isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1:
            raise SpecError(f"timing-oracle: horizon must be a count from 1, found {horizon!r}")
        if objective not in get_args(Objective):
            raise SpecError(
                f"timing-oracle: objective must be one of {', '.join(get_args(Objective))}, "
                f"found {objective!r}"
            )
        self.horizon = horizon
        self.objective = objective
        self._future: Future | None = None

    def foresee(self, future: Future) -> None:
        self._future = future

    def _decide(self, observation: Observation) -> Decision:
        replace, keep = self._cost(REPLACE), self._cost(KEEP)
        unit = "rows" if self.objective == "communication" else "s"
        return Decision(
            replace=replace < keep,
            explanation=f"replace {replace:g} {unit}, keep {keep:g} {unit}",
        )

    def _cost(self, first: Decision) -> float:
        return min(self._value(first, then) for then in (REPLACE, KEEP))

    def _value(self, first: Decision, then: Decision) -> float:
        if self._future is None:
            raise ControllerError("timing-oracle has no trace to look ahead in")
        outlook = self._future.roll_out(first, then, self.horizon)
        return outlook.fetched if self.objective == "communication" else outlook.seconds
