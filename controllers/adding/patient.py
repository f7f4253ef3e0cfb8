"""A controller of one's own, in one file."""

from rudder import Controller, Decision, Observation
from rudder.registries import CONTROLLERS


class Patient(Controller):
    """Replaces once a given share of the buffer is stale."""

    def __init__(self, share: float = 0.3) -> None:
        self.share = share

    def _decide(self, observation: Observation) -> Decision:
        stale = observation.window.stale_share
        return Decision(replace=stale > self.share, explanation=f"{stale:.0%} is stale")


CONTROLLERS.register("patient", Patient, summary="replaces when enough is stale")
