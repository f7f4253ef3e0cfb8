"""Compiling, or loading from the disk cache, every kernel ahead of the first minibatch."""

from __future__ import annotations

import numpy as np

from rudder.decision import Decision
from rudder.policies.base import (
    AdmissionRule,
    AdmittingPolicy,
    DecayPolicy,
    DecayRule,
    HookPolicy,
    Ids,
    Minibatch,
    PolicyTags,
)


class _Decayed(DecayPolicy):
    rule = DecayRule(threshold=0.95, victim="score")


class _Static(_Decayed):
    tags = PolicyTags(static=True)


class _Admitting(AdmittingPolicy):
    rule = AdmissionRule("count")


class _Looking(AdmittingPolicy):
    rule = AdmissionRule("count", window=1)
    window = 1


class _Hooked(HookPolicy):
    def _stale(self, now: Minibatch) -> Ids:
        return np.flatnonzero(now.slot_ids >= 0)

    def _candidates(self, now: Minibatch) -> Ids:
        return now.missed_ids


def warm() -> None:
    """Run every kernel once on a toy buffer.

    Machine code is cached beside the package, or, where that folder cannot be written, in
    ``NUMBA_CACHE_DIR`` or the user's cache folder. The first call ever compiles (tens of seconds);
    later ones, in any process, load (under a second). A launcher calls this once before it starts
    trainers; a trainer calls it before its first minibatch.
    """
    from rudder.buffer.kernels.rows import stream_rows
    from rudder.buffer.persistent import PersistentBuffer

    words, at = np.zeros((2, 9), np.uint64), np.arange(2)
    stream_rows(words, at, np.empty_like(words), at)  # a toy buffer has too few rows for it
    replace = Decision(replace=True)
    policies = (_Decayed(), _Static(), _Admitting(), _Looking(), _Hooked())
    for policy, width in zip(policies, (1, 1, 2, 2, 2), strict=True):
        buffer = PersistentBuffer(600, width, policy)
        buffer.fill(np.arange(600, dtype=np.int64), np.zeros((600, width), np.float32))
        for step in range(3):
            # The records and the map have to grow, so that rehashing is compiled too.
            ids = np.arange(599, 599 + 1500, dtype=np.int64) + step
            plan = buffer.plan(ids, replace)
            pulled = np.zeros((plan.fetched, width), np.float32)
            served = np.empty((len(ids), width), np.float32)
            buffer.commit(plan, pulled, served, np.arange(len(ids)))
        buffer.announce(ids)
        buffer.withdraw()
        buffer.scores(buffer.ids())
        buffer.load_state_dict(buffer.state_dict())
