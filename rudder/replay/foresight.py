"""What a controller may know of the future, in replay only."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple, Protocol

from rudder.controller import Controller
from rudder.decision import Decision


class Outlook(NamedTuple):
    """What follows a decision.

    Attributes:
        fetched: rows fetched, from the minibatch on at which the decision applied.
        seconds: modelled, from now until the last of these minibatches is trained.
        minibatches: that were looked at from there on; fewer than asked for at the end of a trace.
    """

    fetched: int
    seconds: float
    minibatches: int


class Future(Protocol):
    """Rolls a trainer's future out, on a copy: same buffer, policy, accesses, latency, mode."""

    def roll_out(self, decision: Decision, then: Decision, horizon: int) -> Outlook:
        """What follows if the open question is answered by ``decision``, later ones by ``then``.

        Args:
            horizon: minibatches to look at, from the one on at which ``decision`` applies.
        """


class ForesightController(Controller):
    """A controller that is shown the future. Its tags must say ``replay_only``."""

    @abstractmethod
    def foresee(self, future: Future) -> None:
        """Called once before ``reset``."""
