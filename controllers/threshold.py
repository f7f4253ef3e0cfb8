"""``threshold``: replaces when the buffer serves badly, or worse than it did."""

from __future__ import annotations

from rudder import Controller, Decision, Observation, Task
from rudder.errors import SpecError


class Threshold(Controller):
    """Replaces when %-Hits is below a target, or fell since the last replacement.

    The target alone cannot tell a buffer that is too small for it from one that has aged; the fall
    is measured against the best window since the last replacement, so that a slow drift adds up
    until it counts, and one noisy window is forgotten at the next replacement. With nothing stale
    a replacement could change nothing, so none is asked for.

    It expects a replacement to raise %-Hits and lower communication, and keeping to change neither.

    Args:
        target: hit rate, 0..1, below which it replaces. 0 = never for this reason.
        drop: fall of the hit rate, 0..1, above which it replaces. 1 = never for this reason.

    Raises:
        SpecError: a value outside 0..1.
    """

    def __init__(self, target: float = 0.5, drop: float = 0.03) -> None:
        self.target = _share("target", target)
        self.drop = _share("drop", drop)
        self._best = 0.0

    def _reset(self, task: Task) -> None:
        self._best = 0.0

    def _decide(self, observation: Observation) -> Decision:
        window = observation.window
        if not window.remote_sampled:
            return Decision.keep("no remote node was sampled")
        self._best = max(self._best, window.hit_rate)
        fall = self._best - window.hit_rate
        low, fell = window.hit_rate < self.target, fall > self.drop
        if not (low or fell):
            return self._keep(f"hit rate {window.hit_rate:.3f} holds")
        if window.stale_share <= 0:
            return self._keep(f"hit rate {window.hit_rate:.3f}, but nothing is stale")
        self._best = 0.0
        reason = f"below {self.target:g}" if low else f"{fall:.3f} below its best"
        return Decision(
            replace=True,
            expected_hits="increase",
            expected_communication="decrease",
            explanation=f"hit rate {window.hit_rate:.3f} is {reason}",
        )

    @staticmethod
    def _keep(explanation: str) -> Decision:
        return Decision(
            replace=False,
            expected_hits="stagnant",
            expected_communication="stagnant",
            explanation=explanation,
        )


def _share(name: str, value: float) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:
        raise SpecError(f"threshold: {name} must lie in 0..1, found {value!r}")
    return float(value)
