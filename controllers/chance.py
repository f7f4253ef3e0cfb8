"""``random``: replaces with a given probability; what a controller must beat to know anything."""

from __future__ import annotations

import random

from rudder import Capabilities, Controller, Decision, Observation, Task
from rudder.errors import SpecError


class Chance(Controller):
    """Replaces with probability ``p``.

    What is drawn depends on seed, rank, minibatch and ``draw`` only: runs that see the same
    minibatch draw the same, whatever they saw before.

    Args:
        p: probability of a replacement, 0..1.
        draw: which of many draws.

    Raises:
        SpecError: ``p`` lies outside 0..1, or ``draw`` is no count.
    """

    tags: Capabilities = Capabilities(stochastic=True)

    def __init__(self, p: float = 0.5, draw: int = 0) -> None:
        number = isinstance(p, int | float) and not isinstance(p, bool)
        if not number or not 0 <= p <= 1:
            raise SpecError(f"random: p must lie in 0..1, found {p!r}")
        self.p, self.draw = float(p), checked_draw("random", draw)
        self._key = ""

    def _reset(self, task: Task) -> None:
        self._key = draw_key(task.seed, task.rank, self.draw)

    def _decide(self, observation: Observation) -> Decision:
        # Seeding by text hashes it with SHA-512: the same on every machine.
        drawn = random.Random(f"{self._key}:{observation.minibatch}").random()
        return Decision(
            replace=drawn < self.p,
            p_replace=self.p,
            explanation=f"drew {drawn:.3f} against {self.p:g}",
        )


def checked_draw(controller: str, draw: int) -> int:
    """A number of a draw.

    Raises:
        SpecError: it is no count.
    """
    if not isinstance(draw, int) or isinstance(draw, bool) or draw < 0:
        raise SpecError(f"{controller}: draw must be a count from 0, found {draw!r}")
    return draw


def draw_key(seed: int, rank: int, draw: int) -> str:
    """What seeds a draw of a rank."""
    return f"{seed}:{rank}:{draw}" if draw else f"{seed}:{rank}"
