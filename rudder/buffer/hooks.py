"""The ledger of policies that are written as hooks on numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.buffer.kernels import records as kernels
from rudder.buffer.records import Records, check_order
from rudder.errors import BufferUseError, PolicyError
from rudder.policies.base import Choice, Floats, HookPolicy, Ids, Minibatch, replaced_rows

_NONE: Ids = np.empty(0, np.int64)
_POLICY = "policy."


class HookLedger:
    """Keeps who lies where, asks the policy's hooks, and checks what they answer."""

    def __init__(self, capacity: int, policy: HookPolicy) -> None:
        self.capacity = capacity
        self.policy = policy
        self._clear()

    def _clear(self) -> None:
        self._records = Records(self.capacity)
        self._slot_ids: Ids = np.full(self.capacity, -1, np.int64)
        self._occupied = 0
        self._step = 0

    def fill(self, ids: Ids) -> None:
        if len(np.unique(ids)) != len(ids):
            raise BufferUseError(f"the {len(ids)} ids of the initial fill are not distinct")
        self._place(np.arange(len(ids)), ids)
        self._occupied = len(ids)

    def advance(self, remote_ids: Ids, share: float | None) -> Choice:
        records, n = self._records, len(remote_ids)
        check_order(remote_ids)
        found = records.look_up(remote_ids)
        hit_at, hit_slots, miss_at = (np.empty(n, np.int64) for _ in range(3))
        hits = kernels.split(records.rec, found, hit_at, hit_slots, miss_at)
        hit_at, hit_slots, miss_at = hit_at[:hits], hit_slots[:hits], miss_at[: n - hits]
        self._step += 1
        held = self._slot_ids.view()
        held.flags.writeable = False
        now = Minibatch(self._step, hit_slots, remote_ids[hit_at], remote_ids[miss_at], held)
        self.policy._update(now)
        stale = self._checked_stale(self.policy._stale(now))
        entrants, slots, miss = _NONE, _NONE, _NONE
        if share is not None:
            entrants, slots = self._replace(now, stale, share)
            miss = np.searchsorted(now.missed_ids, entrants)
            known = miss < len(now.missed_ids)
            known[known] = now.missed_ids[miss[known]] == entrants[known]
            miss = np.where(known, miss, -1)
        return Choice(hit_at, hit_slots, miss_at, entrants, slots, miss, len(stale), self._occupied)

    def _replace(self, now: Minibatch, stale: Ids, share: float) -> tuple[Ids, Ids]:
        free = self.capacity - self._occupied
        candidates = self._checked_candidates(self.policy._candidates(now))
        rows = replaced_rows(share, len(stale) + free, len(candidates))
        free = min(free, rows)
        entrants = candidates[:rows].copy()
        slots = np.concatenate(
            [np.arange(self._occupied, self._occupied + free), stale[: rows - free]]
        )
        self._place(slots, entrants)
        self._occupied += free
        return entrants, slots

    def _place(self, slots: Ids, ids: Ids) -> None:
        records = self._records
        gone = self._slot_ids[slots]
        gone = gone[gone >= 0]
        records.reserve(len(ids))
        for nodes, where in ((gone, np.full(len(gone), -1, np.int64)), (ids, slots)):
            kernels.set_slots(records.table, records.rec, records.state, nodes, where)
        self._slot_ids[slots] = ids
        self.policy._placed(slots, ids, self._step)

    def _checked_stale(self, stale: Ids) -> Ids:
        stale = self._vector(stale, "_stale")
        if len(stale) and (stale.min() < 0 or stale.max() >= self.capacity):
            self._refuse("_stale", f"slots outside 0..{self.capacity - 1}")
        if (self._slot_ids[stale] < 0).any():
            self._refuse("_stale", "slots that are free")
        if len(np.unique(stale)) != len(stale):
            self._refuse("_stale", "a slot twice")
        return stale

    def _checked_candidates(self, candidates: Ids) -> Ids:
        candidates = self._vector(candidates, "_candidates")
        if len(np.unique(candidates)) != len(candidates):
            self._refuse("_candidates", "an id twice")
        slots = np.empty(len(candidates), np.int64)
        kernels.slots_of(self._records.table, self._records.rec, candidates, slots)
        if (slots >= 0).any():
            self._refuse("_candidates", f"id {candidates[slots >= 0][0]}, which is buffered")
        if len(candidates) and candidates.min() < 0:
            self._refuse("_candidates", "an id below 0")
        return candidates

    def _vector(self, values: Ids, hook: str) -> Ids:
        array = np.asarray(values)
        if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)):
            self._refuse(hook, f"{array.dtype} {list(array.shape)} instead of int64 [n]")
        return np.require(array, np.int64, ["C", "W", "A"])

    def _refuse(self, hook: str, what: str) -> None:
        raise PolicyError(
            f"{type(self.policy).__name__}.{hook} returned {what} at minibatch {self._step}; see "
            "rudder.policies.base.HookPolicy"
        )

    def slots(self) -> tuple[Ids, Ids]:
        held = np.flatnonzero(self._slot_ids >= 0)
        return self._slot_ids[held], held

    def scores(self, ids: Ids) -> Floats:
        slots = np.empty(len(ids), np.int64)
        kernels.slots_of(self._records.table, self._records.rec, ids, slots)
        scores = np.full(len(ids), np.nan)
        scores[slots >= 0] = self.policy._scores(slots[slots >= 0])
        return scores

    def counts(self, ids: Ids) -> Floats:
        """Hook policies keep their candidates to themselves: always 0."""
        return np.zeros(len(ids))

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        own = {"step": np.array(self._step), "slot_ids": self._slot_ids.copy()}
        return own | {_POLICY + k: v for k, v in self.policy.state_dict().items()}

    def load_state_dict(self, state: dict[str, npt.NDArray[Any]]) -> None:
        self._clear()
        held = np.flatnonzero(state["slot_ids"] >= 0)
        self._place(held, state["slot_ids"][held])
        self._step = int(state["step"])
        self._occupied = len(held)
        inner = {k.removeprefix(_POLICY): v for k, v in state.items() if k.startswith(_POLICY)}
        self.policy.load_state_dict(inner)
