"""``random``: replaces with a given probability; what a controller must beat to know anything."""

from __future__ import annotations

import random

from rudder import Capabilities, Controller, Decision, Observation, Task
from rudder.errors import SpecError


class Chance(Controller):
    """Replaces with probability ``p``.

    The draw depends on seed, rank and minibatch only: runs that see the same minibatch draw the
    same, whatever they saw before.

    Args:
        p: probability of a replacement, 0..1.

    Raises:
        SpecError: ``p`` lies outside 0..1.
    """

    tags: Capabilities = Capabilities(stochastic=True)

    def __init__(self, p: float = 0.5) -> None:
        number = isinstance(p, int | float) and not isinstance(p, bool)
        if not number or not 0 <= p <= 1:
            raise SpecError(f"random: p must lie in 0..1, found {p!r}")
        self.p = float(p)
        self._key = ""

    def _reset(self, task: Task) -> None:
        self._key = f"{task.seed}:{task.rank}"

    def _decide(self, observation: Observation) -> Decision:
        # Seeding by text hashes it with SHA-512: the same on every machine.
        drawn = random.Random(f"{self._key}:{observation.minibatch}").random()
        return Decision(
            replace=drawn < self.p,
            p_replace=self.p,
            explanation=f"drew {drawn:.3f} against {self.p:g}",
        )
