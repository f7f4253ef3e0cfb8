"""Controllers that never replace: the baselines ``none`` and ``static``."""

from __future__ import annotations

from rudder import Controller, Decision, Observation


class Keep(Controller):
    """Keeps whatever the buffer holds.

    What tells ``none`` from ``static`` is the scenario that their specs fix: no buffer at all, or
    one that is filled once, by degree.
    """

    def _decide(self, observation: Observation) -> Decision:
        return Decision.keep("never replaces")
