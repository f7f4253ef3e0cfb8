"""A replacement policy of one's own, in one file."""

import numpy as np

from rudder.policies.base import HookPolicy, Ids, Minibatch
from rudder.registries import CONTROLLERS, POLICIES


class Fifo(HookPolicy):
    """First in, first out: what has been buffered longest goes, what was just missed comes."""

    def _reset(self, capacity: int) -> None:
        self.since = np.zeros(capacity, np.int64)

    def _stale(self, now: Minibatch) -> Ids:
        held = np.flatnonzero((now.slot_ids >= 0) & (self.since < now.step - 4))
        return held[np.argsort(self.since[held], kind="stable")]

    def _candidates(self, now: Minibatch) -> Ids:
        return now.missed_ids

    def _placed(self, slots: Ids, ids: Ids, step: int) -> None:
        self.since[slots] = step


POLICIES.register("fifo", Fifo, summary="what was buffered first goes first")
# A name that brings the policy along, for `rudder evaluate`, which compares controllers.
CONTROLLERS.register(
    "always-fifo", CONTROLLERS.target("always"), summary="always, under fifo",
    fields={"policy": "fifo"},
)  # fmt: skip
