"""``threshold``: replaces when the buffer serves badly, or worse than it did."""

from __future__ import annotations

import math

from rudder import Controller, Decision, Observation, Task
from rudder.errors import SpecError

REST = 4
"""Minibatches over which %-Hits is smoothed, and that a replacement is given to show an effect."""


class Threshold(Controller):
    """Replaces some stale rows when %-Hits is below a target, or fell since the last replacement.

    One minibatch says little: its %-Hits varies by points from the draw of its seeds alone. So the
    hit rate is smoothed exponentially over the last minibatches, and judged at the earliest so many
    minibatches after a replacement. The fall is measured against the best since then, so that a
    slow drift adds up until it counts.

    A replacement fetches rows that are not among the misses, and pays only if they are used. How
    many are at stake grows with the buffer, not with the traffic, so a bound on them keeps one
    replacement from costing more than it can save: ``limit`` times the rows missed per minibatch.

    It expects a replacement to raise %-Hits and lower communication, and keeping to change neither.

    Args:
        target: hit rate, 0..1, below which it replaces. 0 = never for this reason.
        drop: fall of the hit rate, 0..1, above which it replaces. 1 = never for this reason.
        limit: rows replaced at a time, per row missed in a minibatch; above 0.

    Raises:
        SpecError: a value out of range.
    """

    def __init__(self, target: float = 0.7, drop: float = 0.02, limit: float = 0.25) -> None:
        self.target = _number("target", target, 1.0)
        self.drop = _number("drop", drop, 1.0)
        self.limit = _number("limit", limit, math.inf)
        if not self.limit:
            raise SpecError("threshold: limit must be above 0; a controller that never replaces "
                            "is called static")  # fmt: skip
        self._forget()

    def _reset(self, task: Task) -> None:
        self._forget()

    def _forget(self) -> None:
        self._smooth: float | None = None
        self._best = 0.0
        self._since = 0

    def _decide(self, observation: Observation) -> Decision:
        window = observation.window
        if not window.remote_sampled:
            return Decision.keep("no remote node was sampled")
        rate = self._observe(window.hit_rate, window.minibatches)
        shown = f"hit rate {rate:.3f}"
        low, fell = rate < self.target, self._best - rate > self.drop
        if not (low or fell):
            return self._keep(f"{shown} holds")
        if self._since < REST:
            return self._keep(f"{shown}, {self._since} minibatches after a replacement")
        missed = window.remote_sampled * (1 - window.hit_rate) / window.minibatches
        stale = window.stale_share * observation.facts.capacity
        if not stale or not missed:
            return self._keep(f"{shown}, but nothing to replace")
        reason = f"below {self.target:g}" if low else f"{self._best - rate:.3f} below its best"
        self._forget()
        return Decision(
            replace=True,
            share=min(1.0, self.limit * missed / stale),
            expected_hits="increase",
            expected_communication="decrease",
            explanation=f"{shown} is {reason}",
        )

    def _observe(self, hit_rate: float, minibatches: int) -> float:
        """Take one window in; returns the smoothed hit rate."""
        weight = 1.0 if self._smooth is None else 1 - math.exp(-minibatches / REST)
        before = self._smooth or 0.0
        self._smooth = before + weight * (hit_rate - before)
        self._best = max(self._best, self._smooth)
        self._since += minibatches
        return self._smooth

    @staticmethod
    def _keep(explanation: str) -> Decision:
        return Decision(
            replace=False,
            expected_hits="stagnant",
            expected_communication="stagnant",
            explanation=explanation,
        )


def _number(name: str, value: float, most: float) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= most or value == math.inf:
        upper = f"0..{most:g}" if most < math.inf else "0 and above"
        raise SpecError(f"threshold: {name} must lie in {upper}, found {value!r}")
    return float(value)
