"""Controllers that replace by the clock: ``always``, ``fixed`` and ``massivegnn``."""

from __future__ import annotations

from rudder import Controller, Decision, Observation, Task
from rudder.errors import SpecError


class Always(Controller):
    """Replaces at every minibatch that has an answer."""

    def _decide(self, observation: Observation) -> Decision:
        return Decision(replace=True, explanation="always replaces")


class Fixed(Controller):
    """Replaces at every ``interval``-th minibatch of the trainer, as MassiveGNN does.

    Minibatches count from 1 over the whole run, epochs do not matter: with an interval of 16 these
    are the 16th, the 32nd, …. A decision is for the *next* minibatch. Where answers come late some
    minibatches have no observation of their own; a multiple that passed among them is made up for
    at once.

    Args:
        interval: minibatches from one replacement to the next, at least 1.

    Raises:
        SpecError: ``interval`` is no whole number from 1.
    """

    def __init__(self, interval: int = 16) -> None:
        if not isinstance(interval, int) or isinstance(interval, bool) or interval < 1:
            raise SpecError(f"fixed: interval must be a whole number from 1, found {interval!r}")
        self.interval = interval
        self._seen = 0

    def _reset(self, task: Task) -> None:
        self._seen = 0

    def _decide(self, observation: Observation) -> Decision:
        following = observation.minibatch + 1
        due = following // self.interval > self._seen // self.interval
        self._seen = following
        return Decision(
            replace=due,
            explanation=f"minibatch {following}, {'' if due else 'not '}due every {self.interval}",
        )
