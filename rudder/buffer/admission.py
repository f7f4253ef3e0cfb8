"""The ledger of policies that admit rows of the current pull at every minibatch."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.buffer.kernels import admission as kernels
from rudder.buffer.kernels.chains import CHAIN_WIDTH
from rudder.buffer.kernels.records import ID, OCCUPIED, RECORDS, SLOT, STALE, STEP, TOUCHED, VALUE
from rudder.buffer.records import Records, check_order, grown_chains
from rudder.errors import BufferUseError
from rudder.policies.base import AdmissionRule, Choice, Floats, Ids


class AdmissionLedger:
    """Slots, counts and announced minibatches under an :class:`AdmissionRule`.

    A minibatch of n remote nodes, m of them missed, costs O(n + m log m), announcing it O(n);
    neither depends on the capacity or on the graph. ``stale`` counts the buffered nodes that
    neither this minibatch nor an announced one needs. See :mod:`rudder.buffer.kernels.admission`.

    Args:
        capacity: slots.
        rule: what nodes are worth.
    """

    def __init__(self, capacity: int, rule: AdmissionRule) -> None:
        self.capacity = capacity
        self.rule = rule
        self._ln_decay = -math.log(rule.decay)
        self._kind = kernels.RECENCY
        if rule.order == "count":
            self._kind = kernels.COUNTED if rule.decay == 1 else kernels.DECAYED
        self._clear()

    def _clear(self) -> None:
        self._records = Records(self.capacity)
        self._slot_record: Ids = np.full(self.capacity, -1, np.int64)
        self._idle: Ids = np.zeros((0, CHAIN_WIDTH), np.int64)
        self._needed: Ids = np.zeros((2 * kernels.RING, CHAIN_WIDTH), np.int64)
        # Announced and not yet planned, the next one in front: ids and their records.
        self._open: deque[tuple[Ids, Ids]] = deque()
        self._reserve_buckets()

    @property
    def step(self) -> int:
        """Minibatches so far."""
        return int(self._records.state[STEP])

    def fill(self, ids: Ids) -> None:
        order = np.argsort(ids, kind="stable")
        first = np.full(len(ids), 0.0 if self._kind == kernels.RECENCY else 1.0)
        if not self._settle(ids[order], first, np.zeros(len(ids), np.int64), order):
            raise BufferUseError(f"the {len(ids)} ids of the initial fill are not distinct")

    def _settle(self, ids: Ids, values: Floats, touched: Ids, slots: Ids) -> bool:
        records = self._records
        records.reserve(len(ids))
        distinct: bool = kernels.settle(
            records.table, records.rec, records.val, self._idle, records.state,
            self._slot_record, self._kind, self._ln_decay, self.rule.window, ids, values,
            touched, slots,
        )  # fmt: skip
        return distinct

    def announce(self, remote_ids: Ids) -> None:
        check_order(remote_ids)
        if len(self._open) > self.rule.window:
            raise BufferUseError(
                f"{len(self._open)} minibatches are announced and not planned; with a window of "
                f"{self.rule.window} the next one must be planned first"
            )
        records, found = self._records, np.empty(len(remote_ids), np.int64)
        records.reserve(len(remote_ids))
        kernels.announce(
            records.table, records.rec, self._idle, self._needed, records.state,
            self.step + 1 + len(self._open), remote_ids, found,
        )  # fmt: skip
        self._open.append((remote_ids, found))

    def withdraw(self) -> None:
        records = self._records
        for _, found in self._open:
            kernels.withdraw(
                records.rec, self._idle, self._needed, records.state, self._kind, self._ln_decay,
                found,
            )  # fmt: skip
        self._open.clear()

    def advance(self, remote_ids: Ids, share: float | None) -> Choice:
        """One minibatch; ``share`` is not heard: the policy decides itself."""
        records, n = self._records, len(remote_ids)
        found = self._found(remote_ids)
        self._reserve_buckets()
        hit_at, hit_slots, miss_at, entrants, slots, miss = (
            np.empty(n, np.int64) for _ in "123456"
        )
        hits, entered = kernels.admit(
            records.table, records.rec, records.val, self._idle, self._needed, records.state,
            self._slot_record, self._kind, self._ln_decay, self.rule.window, remote_ids, found,
            hit_at, hit_slots, miss_at, entrants, slots, miss,
        )  # fmt: skip
        return Choice(
            hit_at[:hits], hit_slots[:hits], miss_at[: n - hits], entrants[:entered],
            slots[:entered], miss[:entered], int(records.state[STALE]),
            int(records.state[OCCUPIED]),
        )  # fmt: skip

    def _found(self, remote_ids: Ids) -> Ids:
        """Records of the minibatch's nodes; room for them if it was not announced."""
        if not self.rule.window:
            check_order(remote_ids)
            self._records.reserve(len(remote_ids))
            return np.empty(len(remote_ids), np.int64)
        if not self._open:
            self.announce(remote_ids)
        announced, found = self._open[0]
        if not np.array_equal(announced, remote_ids):
            raise BufferUseError(
                f"a minibatch of {len(remote_ids)} remote ids is planned, but another one of "
                f"{len(announced)} was announced for this turn; plan in the order of announcing"
            )
        self._open.popleft()
        return found

    def _reserve_buckets(self) -> None:
        """Room for every bucket that the next minibatch can reach."""
        now = self.step + 1
        highest = now + 1
        if self._kind == kernels.DECAYED:
            most = min(now + 1.0, 1 / (1 - self.rule.decay))
            highest = now + math.ceil(math.log(most) / self._ln_decay) + 2
        self._idle = grown_chains(self._idle, 2 * (highest + 1))

    def slots(self) -> tuple[Ids, Ids]:
        held = np.flatnonzero(self._slot_record >= 0)
        return self._records.rec[self._slot_record[held], ID], held

    def scores(self, ids: Ids) -> Floats:
        """Counts now (LRU: last use) of the buffered nodes."""
        buffered, values = self._values(ids)
        return np.where(buffered, values, np.nan)

    def counts(self, ids: Ids) -> Floats:
        """The same of nodes that were seen and are not buffered."""
        buffered, values = self._values(ids)
        return np.where(buffered, 0.0, values)

    def _values(self, ids: Ids) -> tuple[npt.NDArray[np.bool_], Floats]:
        """Is each node buffered, and its count (LRU: last use); 0 if it was never seen."""
        records = self._records
        found = records.look_up(ids)
        rec = records.rec[found]
        touched = rec[:, TOUCHED]
        values = records.val[found, VALUE]
        if self._kind == kernels.RECENCY:
            values = touched.astype(np.float64)
        elif self._kind == kernels.DECAYED:
            values = values * np.exp(-self._ln_decay * (self.step - touched))
        known = found >= 0
        return known & (rec[:, SLOT] >= 0), np.where(known, values, 0.0)

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Everything but the minibatches that are announced: announce them again."""
        records = self._records
        rec = records.rec[: int(records.state[RECORDS])]
        return {
            "step": np.array(self.step),
            "ids": rec[:, ID].copy(),
            "values": records.val[: len(rec), VALUE].copy(),
            "touched": np.zeros(len(rec), np.int64) if self.rule.window else rec[:, TOUCHED].copy(),
            "slots": rec[:, SLOT].copy(),
        }

    def load_state_dict(self, state: dict[str, npt.NDArray[Any]]) -> None:
        self._clear()
        self._records.state[STEP] = int(state["step"])
        self._reserve_buckets()
        self._settle(state["ids"], state["values"], state["touched"], state["slots"])
