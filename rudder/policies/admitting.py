"""The built-in policies that decide themselves: rows of each pull are let in at no extra fetch."""

from __future__ import annotations

from rudder.errors import SpecError
from rudder.policies.base import MIN_DECAY_STEP, AdmissionRule, AdmittingPolicy


class Lru(AdmittingPolicy):
    """Keeps what was used last: every missed row comes in, for the one idle for longest."""

    rule = AdmissionRule("recency")


class Lfu(AdmittingPolicy):
    """Keeps what most minibatches so far have used; counts outlive a stay in the buffer."""

    rule = AdmissionRule("count")


class LfuDecay(AdmittingPolicy):
    """:class:`Lfu` with counts that fade.

    Args:
        decay: of every count per minibatch, 1e-5..1-1e-5.
    """

    def __init__(self, decay: float = 0.99) -> None:
        if not MIN_DECAY_STEP <= decay <= 1 - MIN_DECAY_STEP:
            raise SpecError(
                f"lfu-decay: decay = {decay!r} must lie in {MIN_DECAY_STEP}..1-{MIN_DECAY_STEP}; "
                "lfu has none"
            )
        self.decay = decay
        self.rule = AdmissionRule("count", decay)


class Lookahead(AdmittingPolicy):
    """Keeps what the sampled minibatches ahead need, nearest first; beyond them, by count.

    Args:
        window: minibatches sampled ahead of the one being pulled, 1..62. They are held in memory.
    """

    def __init__(self, window: int = 8) -> None:
        self.rule = AdmissionRule("count", window=window)
        if not window:
            raise SpecError("lookahead: window = 0 must be 1 or more; lfu looks at none ahead")
        self.window = window
