"""The ledger of the decayed-score family: parameters in, compiled kernels do the work."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.buffer.kernels import scores as kernels
from rudder.buffer.kernels.chains import CHAIN_WIDTH
from rudder.buffer.kernels.records import (
    CANDIDATES,
    ID,
    OCCUPIED,
    RECORDS,
    SLOT,
    STALE,
    STEP,
    TOUCHED,
    VALUE,
    split,
)
from rudder.buffer.records import Records, check_order, grown_chains
from rudder.errors import BufferUseError
from rudder.policies.base import STALE_SLACK, Choice, DecayRule, Floats, Ids, replaced_rows

_NONE: Ids = np.empty(0, np.int64)


class DecayLedger:
    """Scores, counts and slots under a :class:`DecayRule`; see :mod:`rudder.buffer.kernels.scores`.

    A minibatch costs O(its remote nodes), a replacement O(rows replaced + remote nodes of the
    minibatch); neither depends on the capacity or on the graph.

    Args:
        capacity: slots.
        rule: how scores and counts move.
        static: never replace: nothing is scored or counted.
    """

    def __init__(self, capacity: int, rule: DecayRule, *, static: bool = False) -> None:
        self.capacity = capacity
        self.rule = rule
        self.static = static
        self._parameters = _parameters(rule)
        self._clear()

    def _clear(self) -> None:
        self._records = Records(self.capacity)
        self._slot_record: Ids = np.full(self.capacity, -1, np.int64)
        self._scores: Ids = np.zeros((0, CHAIN_WIDTH), np.int64)
        self._counts: Ids = np.zeros((0, CHAIN_WIDTH), np.int64)
        self._reserve_buckets()

    @property
    def step(self) -> int:
        """Minibatches so far."""
        return int(self._records.state[STEP])

    def fill(self, ids: Ids) -> None:
        records = self._records
        records.reserve(len(ids))
        order = np.argsort(ids, kind="stable")
        distinct = kernels.fill(
            records.table, records.rec, records.val, self._scores, records.state,
            self._parameters, self._slot_record, ids[order], order, not self.static,
        )  # fmt: skip
        if not distinct:
            raise BufferUseError(f"the {len(ids)} ids of the initial fill are not distinct")

    def advance(self, remote_ids: Ids, share: float | None) -> Choice:
        records, n = self._records, len(remote_ids)
        check_order(remote_ids)
        hit_at, hit_slots, miss_at = (np.empty(n, np.int64) for _ in range(3))
        if self.static:
            found = records.look_up(remote_ids)
            hits = split(records.rec, found, hit_at, hit_slots, miss_at)
            records.state[STEP] += 1
        else:
            found = np.empty(n, np.int64)
            records.reserve(n)
            self._reserve_buckets()
            hits = kernels.advance(
                records.table, records.rec, records.val, self._scores, self._counts,
                records.state, self._parameters, remote_ids, found, hit_at, hit_slots, miss_at,
            )  # fmt: skip
        stale = int(records.state[STALE])
        entrants, slots, miss = self._replace(share, stale, n)
        return Choice(
            hit_at[:hits], hit_slots[:hits], miss_at[: n - hits], entrants, slots, miss,
            stale, int(records.state[OCCUPIED]),
        )  # fmt: skip

    def _replace(self, share: float | None, stale: int, n: int) -> tuple[Ids, Ids, Ids]:
        records = self._records
        if share is None or self.static:
            return _NONE, _NONE, _NONE
        free = self.capacity - int(records.state[OCCUPIED])
        rows = replaced_rows(share, stale + free, int(records.state[CANDIDATES]))
        entrants, slots, miss = (np.empty(rows, np.int64) for _ in range(3))
        if rows:
            kernels.replace(
                records.rec, records.val, self._scores, self._counts, records.state,
                self._parameters, self._slot_record, rows, n, entrants, slots, miss,
            )  # fmt: skip
        return entrants, slots, miss

    def _reserve_buckets(self) -> None:
        """Room for every bucket that the next minibatch can reach."""
        rule, now = self.rule, self.step + 1
        # The most that a count and a score can have reached by an access at every minibatch.
        high_count = now + 1.0
        if rule.count_on_miss < 1:
            high_count = min(high_count, 1 / (1 - rule.count_on_miss))
        high_score = max(rule.initial, high_count if rule.entrant == "count" else 0.0)
        high_score = max(high_score + rule.gain * now, rule.threshold)
        if rule.victim == "score":
            high_count += high_score
        ahead = math.log(high_score / rule.threshold) / -math.log(rule.decay)
        self._scores = grown_chains(self._scores, 2 * (now + math.ceil(ahead) + 4))
        ahead = math.log(high_count) / -math.log(rule.count_decay)
        self._counts = grown_chains(self._counts, 2 * (now + math.ceil(ahead) + 4))

    def slots(self) -> tuple[Ids, Ids]:
        held = np.flatnonzero(self._slot_record >= 0)
        return self._records.rec[self._slot_record[held], ID], held

    def scores(self, ids: Ids) -> Floats:
        return self._values(ids)[0]

    def counts(self, ids: Ids) -> Floats:
        return self._values(ids)[1]

    def _values(self, ids: Ids) -> tuple[Floats, Floats]:
        records = self._records
        scores, counts = np.empty(len(ids)), np.empty(len(ids))
        parameters = self._parameters
        if self.static:
            parameters = parameters.copy()
            parameters[kernels.LN_DECAY] = 0.0
        kernels.values(
            records.table, records.rec, records.val, records.state, parameters, ids,
            scores, counts,
        )  # fmt: skip
        return scores, counts

    def take_over(self, other: DecayLedger) -> None:
        """Become a copy of a ledger of the same capacity and rule, without building it anew."""
        self._records.take_over(other._records)
        self._slot_record = other._slot_record.copy()
        self._scores = other._scores.copy()
        self._counts = other._counts.copy()

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        records = self._records
        used = int(records.state[RECORDS])
        rec = records.rec[:used]
        return {
            "step": np.array(self.step),
            "ids": rec[:, ID].copy(),
            "values": records.val[:used, VALUE].copy(),
            "touched": rec[:, TOUCHED].copy(),
            "slots": np.maximum(rec[:, SLOT], -1),
        }

    def load_state_dict(self, state: dict[str, npt.NDArray[Any]]) -> None:
        self._clear()
        records = self._records
        records.reserve(len(state["ids"]))
        records.state[STEP] = int(state["step"])
        self._reserve_buckets()
        kernels.restore(
            records.table, records.rec, records.val, self._scores, self._counts, records.state,
            self._parameters, self._slot_record, state["ids"], state["values"], state["touched"],
            state["slots"], not self.static,
        )  # fmt: skip


def _parameters(rule: DecayRule) -> Floats:
    parameters = np.zeros(kernels.PARAMETERS, np.float64)
    parameters[kernels.LN_DECAY] = -math.log(rule.decay)
    parameters[kernels.LN_THRESHOLD] = math.log(rule.threshold) + math.log1p(-STALE_SLACK)
    parameters[kernels.ON_ACCESS] = rule.on_access
    parameters[kernels.GAIN] = rule.gain
    parameters[kernels.INITIAL] = rule.initial
    parameters[kernels.LN_COUNT_DECAY] = -math.log(rule.count_decay)
    parameters[kernels.COUNT_ON_MISS] = rule.count_on_miss
    parameters[kernels.ENTRANT_COUNT] = rule.entrant == "count"
    parameters[kernels.VICTIM_SCORE] = rule.victim == "score"
    return parameters
