"""The built-in policies of the decayed-score family."""

from __future__ import annotations

from typing import ClassVar

from rudder.errors import SpecError
from rudder.policies.base import MIN_DECAY_STEP, DecayPolicy, DecayRule, PolicyTags


class Score(DecayPolicy):
    """The paper's scores: +1 with access, x0.95 without; stale below 0.95.

    Source: the paper's scoring rule; what it leaves open is fixed in :class:`DecayRule`.
    """

    rule = DecayRule(threshold=0.95)


class ScorePublished(DecayPolicy):
    """The published code's rule, for comparison: victims come back at once, rows are refetched."""

    rule = DecayRule(threshold=0.95, victim="score")
    refetch = True


class MassiveGNN(DecayPolicy):
    """MassiveGNN's scores: x(1 - alpha) without access, unchanged with.

    Args:
        alpha: decay per minibatch without access, 1e-5..1-1e-5.
        interval: stale below ``(1 - alpha)**interval``: after more than so many idle minibatches.

    An entrant starts with score 1. Candidates are counted as under :class:`Score`.
    """

    def __init__(self, alpha: float = 0.05, interval: int = 16) -> None:
        if not MIN_DECAY_STEP <= alpha <= 1 - MIN_DECAY_STEP:
            raise SpecError(
                f"massivegnn: alpha = {alpha!r} must lie in {MIN_DECAY_STEP}..1-{MIN_DECAY_STEP}"
            )
        if isinstance(interval, bool) or not isinstance(interval, int) or interval < 1:
            raise SpecError(f"massivegnn: interval = {interval!r} must be a count, 1 or more")
        threshold = (1 - alpha) ** interval
        if threshold < 1e-200:
            raise SpecError(
                f"massivegnn: (1 - alpha)**interval = {threshold!r} is too small to tell scores "
                f"apart; lower alpha = {alpha!r} or interval = {interval!r}"
            )
        self.alpha = alpha
        self.interval = interval
        self.rule = DecayRule(threshold=threshold, decay=1 - alpha, gain=0.0, entrant="initial")


class Degree(DecayPolicy):
    """Weights that never change: the buffer keeps what it was filled with."""

    tags: ClassVar[PolicyTags] = PolicyTags(static=True)
    rule = DecayRule(threshold=0.95)


class Presampled(Degree):
    """Static by measured frequency: filled with the nodes that most sampled minibatches need.

    Args:
        minibatches: how many are sampled before the first one of the run, to count accesses.

    Slots that are left over are filled as the scenario says.
    """

    def __init__(self, minibatches: int = 32) -> None:
        if isinstance(minibatches, bool) or not isinstance(minibatches, int) or minibatches < 1:
            raise SpecError(f"presampled: minibatches = {minibatches!r} must be a count, 1 or more")
        self.minibatches = minibatches
        self.presample = minibatches
