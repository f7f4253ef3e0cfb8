"""Learning in context: examples from the agent's own decisions whose outcome is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rudder.decision import Effect
from rudder.observation import Observation, Past, Window
from rudder.steering import rebuild

Order = Literal["recent", "best-last", "balanced", "similar-last"]
ORDERS: tuple[Order, ...] = ("recent", "best-last", "balanced", "similar-last")
KEPT = 256
"""Examples that are remembered at most; the oldest go first."""
_PENDING = 64
"""Situations whose decision may still settle: more than a history spans."""


@dataclass(frozen=True)
class Example:
    """A situation, what was decided in it, and what followed.

    Attributes:
        window: what was shown.
        replace: the decision.
        hits_effect, communication_effect, reward: measured afterwards; the reward in bytes.
    """

    window: Window
    replace: bool
    hits_effect: Effect
    communication_effect: Effect
    reward: float

    @property
    def decision(self) -> str:
        return "replace" if self.replace else "keep"


class Experience:
    """Gathers examples as decisions settle, and chooses some of them.

    Args:
        shots: examples that are chosen at most; 0 = none.
        order: which, and in which order; the last one stands nearest to the question. ``recent``:
            the newest, oldest first; ``best-last``: of the newest, by reward; ``balanced``:
            replace and keep in turn, the newest of each; ``similar-last``: those whose situation
            resembles the present one most.
    """

    def __init__(self, shots: int, order: Order = "recent") -> None:
        self._shots, self._order = shots, order
        self._asked: deque[tuple[int, Window]] = deque(maxlen=_PENDING)
        self._examples: deque[Example] = deque(maxlen=KEPT)
        self._taken: set[int] = set()

    def __len__(self) -> int:
        return len(self._examples)

    def remember(self, examples: Iterable[Example]) -> None:
        """Begin with examples from elsewhere."""
        self._examples.extend(examples)

    def see(self, observation: Observation) -> None:
        """Take what has settled in the history, and the present situation."""
        for past in observation.history:
            if past.window and past.minibatch not in self._taken:
                self._taken.add(past.minibatch)
                window = self._shown_before(past.minibatch)
                if window is not None:
                    self._examples.append(_example(window, past))
        # What left the history cannot come back.
        oldest = observation.history[0].minibatch if observation.history else 0
        self._taken = {minibatch for minibatch in self._taken if minibatch >= oldest}
        self._asked.append((observation.minibatch, observation.window))

    def chosen(self, window: Window) -> list[Example]:
        """Examples for the present situation, the last one nearest to the question."""
        if not self._shots:
            return []
        known = list(self._examples)
        if self._order == "similar-last":
            return sorted(known, key=lambda e: _distance(e.window, window))[: self._shots][::-1]
        if self._order == "balanced":
            return _balanced(known, self._shots)
        newest = known[-self._shots :]
        return sorted(newest, key=lambda e: e.reward) if self._order == "best-last" else newest

    def _shown_before(self, minibatch: int) -> Window | None:
        for asked_at, window in reversed(self._asked):
            if asked_at <= minibatch:
                return window
        return None


def examples_of(run: Path, rank: int) -> list[Example]:
    """What a finished run's decisions of a rank came to: memory of an earlier run.

    Raises:
        ResultError: no complete run lies there.
    """
    found = []
    for asked in rebuild(run):
        effect = asked.effect
        if asked.rank == rank and effect is not None and asked.decision.outcome == "valid":
            found.append(
                Example(
                    asked.observation.window,
                    asked.decision.replace,
                    effect["hits_effect"],
                    effect["communication_effect"],
                    effect["reward"],
                )
            )
    return found


def _example(window: Window, past: Past) -> Example:
    hits, communication = past.hits_effect, past.communication_effect
    if hits is None or communication is None:
        raise ValueError("the decision has not settled")
    return Example(window, past.decision.replace, hits, communication, past.reward)


def _balanced(known: Sequence[Example], shots: int) -> list[Example]:
    """The newest of either kind in turn, the newest last."""
    kinds = [[e for e in known if e.replace], [e for e in known if not e.replace]]
    chosen: list[Example] = []
    while len(chosen) < shots and any(kinds):
        chosen += [kind.pop() for kind in kinds if kind]
    return chosen[:shots][::-1]


def _distance(one: Window, other: Window) -> float:
    names = ("hit_rate", "hit_rate_change", "stale_share", "communication_change")
    return float(sum(abs(getattr(one, name) - getattr(other, name)) for name in names))
