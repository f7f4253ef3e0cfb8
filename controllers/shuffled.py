"""``shuffled``: an earlier run's answers in another order; tells skill from rate."""

from __future__ import annotations

import random
from pathlib import Path

from rudder import Capabilities, Controller, Decision, Observation, Task
from rudder.errors import ControllerError, SpecError
from rudder.result import RunResult

from .chance import checked_draw, draw_key


class Shuffled(Controller):
    """Gives each question the answer that another question of an earlier run was given.

    A controller that asks nothing but the observation before it answers the same if its
    observations are shuffled in time: the answers, shuffled. They keep their rate and lose their
    moment. What the controller gains over this control is what its timing is worth.

    Args:
        run: run directory whose answers are given, rank by rank.
        draw: which of many orders.

    Raises:
        SpecError: no run is named, or ``draw`` is no count.
    """

    tags: Capabilities = Capabilities(stochastic=True, paths=("run",))

    def __init__(self, run: str, draw: int = 0) -> None:
        if not isinstance(run, str) or not run:
            raise SpecError("shuffled needs the run whose answers it gives: shuffled:run=DIRECTORY")
        self.run, self.draw = run, checked_draw("shuffled", draw)
        self._own: list[Decision] = []
        self._given: list[Decision] = []

    def _reset(self, task: Task) -> None:
        self._own = answers(Path(self.run).expanduser(), task.rank)
        self._given = in_another_order(self._own, task.seed, task.rank, self.draw)

    def _decide(self, observation: Observation) -> Decision:
        at = observation.index % len(self._given)
        given, own = self._given[at], self._own[at]
        return Decision(
            replace=given.replace,
            share=given.share,
            p_replace=given.p_replace,
            explanation="changed" if given.replace != own.replace else "the same as it was",
        )


def answers(run: Path, rank: int) -> list[Decision]:
    """The answers of a rank in order of question; those that were none keep the buffer.

    Raises:
        ControllerError: the run asked no question of this rank.
        ResultError: no complete run lies there.
    """
    found = [
        Decision(**record["decision"])
        for record in RunResult.load(run).decisions
        if record["rank"] == rank
    ]
    if not found:
        raise ControllerError(f"{run} holds no decisions of rank {rank}")
    return found


def in_another_order(own: list[Decision], seed: int, rank: int, draw: int = 0) -> list[Decision]:
    """The same answers, shuffled by seed, rank and draw."""
    given = list(own)
    # Seeding by text hashes it with SHA-512: the same on every machine.
    random.Random(draw_key(seed, rank, draw)).shuffle(given)
    return given


def changed_share(run: Path, ranks: int, seed: int) -> float:
    """Share of a run's answers that its shuffled control gives otherwise, 0..1."""
    changed = total = 0
    for rank in range(ranks):
        own = answers(run, rank)
        given = in_another_order(own, seed, rank)
        changed += sum(a.replace != b.replace for a, b in zip(own, given, strict=True))
        total += len(own)
    return changed / total
