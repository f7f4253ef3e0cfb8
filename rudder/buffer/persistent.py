"""The persistent buffer of one trainer: rows of remote nodes, kept over minibatches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from rudder.buffer.arrays import as_ids
from rudder.decision import Decision
from rudder.errors import BufferUseError
from rudder.policies.base import AnnouncedLedger, Choice, Floats, Ids, Ledger, Policy

Rows = npt.NDArray[Any]

_STREAMED = 8 << 20
"""From so many bytes on, rows are written past the caches: they are more than a core's own caches
hold, so they would be gone before anybody reads them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one minibatch needs from the network, and what the buffer does at it.

    Attributes:
        hits: remote nodes found in the buffer.
        misses: the others; ``hits + misses`` = remote nodes of the minibatch.
        replaced: rows that enter the buffer, into slots of stale nodes or free ones.
        fetched: rows to pull: misses + entrants that were not misses (a policy with ``refetch``:
            + all entrants).
        stale: stale nodes at the end of the minibatch, before the replacement.
        stale_share: ``stale`` / capacity, 0..1. Free slots are not in it.
        occupancy: slots that hold a node after the replacement / capacity, 0..1.
        pull: int64 ``[fetched]``: ids to fetch in one pull: misses ascending, then entrants.
    """

    hits: int
    misses: int
    replaced: int
    fetched: int
    stale: int
    stale_share: float
    occupancy: float
    pull: Ids
    choice: Choice = field(repr=False)
    entrant_pull: Ids = field(repr=False)
    """int64 ``[replaced]``: where in the pull each entrant's row lies."""


class PersistentBuffer:
    """Features of remote nodes that a trainer keeps, and the policy that renews them.

    Each minibatch is one :meth:`plan`, one pull of ``plan.pull`` over the network, one
    :meth:`commit`, in this order: look up; update scores and counts at the end of the minibatch;
    take the stale share; then, if the decision says so, choose victims and entrants. Not for use
    by several threads at once.

    Args:
        capacity: slots, 0 or more.
        width: features per row; 0 = no rows are kept, only counted (replay).
        policy: which nodes leave and enter.
        dtype: of the features.

    Raises:
        BufferUseError: by every method: arrays of the wrong shape, type or order, or calls out of
            order.
    """

    def __init__(
        self, capacity: int, width: int, policy: Policy, dtype: npt.DTypeLike = np.float32
    ) -> None:
        if capacity < 0 or width < 0:
            raise BufferUseError(
                f"capacity and width must be 0 or more, found {capacity} and {width}"
            )
        self.capacity = capacity
        self.width = width
        self.policy = policy
        self.dtype = np.dtype(dtype)
        self.filled = 0
        self._ledger = policy.ledger(capacity)
        self._listening = _listening(self._ledger, policy)
        self._rows: Rows = np.empty((capacity if width else 0, width), self.dtype)
        self._started = False
        self._open: Plan | None = None

    def fill(self, ids: Ids, rows: Rows | None = None) -> None:
        """Put the first nodes in, once, before the first minibatch.

        Args:
            ids: int64 ``[n]``, distinct, n at most the capacity.
            rows: ``[n, width]``, their features; None with width 0.
        """
        ids = as_ids(ids, "ids of the fill")
        if self._started or self.filled:
            raise BufferUseError("the buffer is filled once, before its first minibatch")
        if len(ids) > self.capacity:
            raise BufferUseError(f"{len(ids)} rows do not fit into {self.capacity} slots")
        if len(ids) and ids.min() < 0:
            raise BufferUseError(f"node ids are 0 or more, found {ids.min()}")
        if self.width:
            self._rows[: len(ids)] = self._checked(rows, len(ids), "rows of the fill")
        self._ledger.fill(ids)
        self.filled = len(ids)

    def announce(self, remote_ids: Ids) -> None:
        """Say what a coming minibatch will ask for, as soon as it is sampled.

        Minibatches are announced in the order in which they are planned, each at most once, and at
        most ``policy.window`` beyond the next one to be planned. One that is planned without
        having been announced is announced by its plan. A policy that does not look ahead takes no
        note.

        Args:
            remote_ids: int64 ``[n]``: its remote nodes, distinct, ascending; not to be changed
                until it is planned.
        """
        if self._listening is not None:
            self._listening.announce(as_ids(remote_ids, "remote ids"))
            self._started = True

    def withdraw(self) -> None:
        """Take back every announcement whose minibatch is not planned: it will not come."""
        if self._listening is not None:
            self._listening.withdraw()

    def plan(self, remote_ids: Ids, decision: Decision | None = None) -> Plan:
        """Look a minibatch up, and choose what to replace.

        Args:
            remote_ids: int64 ``[n]``: its remote nodes, distinct, ascending.
            decision: replace or keep, and the share; None = keep. A policy that decides itself
                replaces at every minibatch.
        """
        if self._open is not None:
            raise BufferUseError("commit the last plan before the next one is made")
        remote_ids = as_ids(remote_ids, "remote ids")
        share: float | None = None
        if self.policy.tags.self_deciding:
            share = 1.0
        elif decision is not None and decision.replace:
            share = decision.share
        choice = self._ledger.advance(remote_ids, share)
        self._started = True
        misses = remote_ids[choice.miss_at]
        again = self.policy.refetch
        late = np.arange(len(choice.entrants)) if again else np.flatnonzero(choice.entrant_miss < 0)
        where = choice.entrant_miss.copy()
        where[late] = len(misses) + np.arange(len(late))
        pull = np.concatenate([misses, choice.entrants[late]])
        slots = max(self.capacity, 1)
        self._open = Plan(
            hits=len(choice.hit_at),
            misses=len(misses),
            replaced=len(choice.entrants),
            fetched=len(pull),
            stale=choice.stale,
            stale_share=choice.stale / slots,
            occupancy=choice.occupied / slots,
            pull=pull,
            choice=choice,
            entrant_pull=where,
        )
        return self._open

    def commit(
        self,
        plan: Plan,
        pulled: Rows | None = None,
        out: Rows | None = None,
        at: Ids | None = None,
    ) -> None:
        """Serve the minibatch's rows, then store the entrants' ones.

        Args:
            plan: the last plan.
            pulled: ``[fetched, width]``: rows of ``plan.pull``, in that order.
            out: ``[*, width]``, C order: receives the row of remote node i in ``out[at[i]]``.
            at: int64 ``[n]``, one per remote node of the plan.

        With width 0 only the plan is given. Rows are copied as they are, bit by bit.
        """
        if plan is not self._open:
            raise BufferUseError("only the last plan can be committed, and only once")
        if self.width:
            self._copy(plan, pulled, out, at)
        self._open = None

    def _copy(self, plan: Plan, pulled: Rows | None, out: Rows | None, at: Ids | None) -> None:
        choice = plan.choice
        rows = self._checked(pulled, plan.fetched, "pulled")
        if out is None or at is None:
            raise BufferUseError(f"a buffer of width {self.width} needs out and at to commit")
        self._checked(out, None, "out")
        if not out.flags.c_contiguous or not out.flags.writeable:
            raise BufferUseError("out must be writable and in C order: rows are written in place")
        at = as_ids(at, "at")
        if len(at) != plan.hits + plan.misses:
            raise BufferUseError(
                f"at has {len(at)} positions for {plan.hits + plan.misses} remote nodes"
            )
        if len(at) and (at.min() < 0 or at.max() >= len(out)):
            raise BufferUseError(f"at names rows outside the {len(out)} of out")
        if plan.fetched + plan.hits == 0:
            return
        kept, came, served = _as_words(self._rows, rows, out)
        _copy_rows(kept, choice.hit_slots, served, at[choice.hit_at])
        _copy_rows(came, np.arange(plan.misses), served, at[choice.miss_at])
        _copy_rows(came, plan.entrant_pull, kept, choice.entrant_slots)

    def _checked(self, rows: Rows | None, count: int | None, what: str) -> Rows:
        if rows is None:
            raise BufferUseError(f"a buffer of width {self.width} needs {what}")
        good = rows.ndim == 2 and rows.shape[1] == self.width and rows.dtype == self.dtype
        if not good or (count is not None and len(rows) != count):
            wanted = f"{self.dtype} [{'*' if count is None else count}, {self.width}]"
            raise BufferUseError(f"{what} must be {wanted}, found {rows.dtype} {list(rows.shape)}")
        return rows

    def ids(self) -> Ids:
        """Ids of the buffered nodes: int64, in order of slot."""
        return self._ledger.slots()[0]

    def rows(self) -> Rows:
        """Copies of the buffered rows, in the order of :meth:`ids`."""
        self._committed("rows")
        return self._rows[self._ledger.slots()[1]] if self.width else self._rows

    def scores(self, ids: Ids) -> Floats:
        """Scores now: float64, NaN where a node is not buffered."""
        return self._ledger.scores(as_ids(ids, "ids"))

    def counts(self, ids: Ids) -> Floats:
        """Candidate counts now: float64, 0 where a node is no candidate."""
        return self._ledger.counts(as_ids(ids, "ids"))

    def state_dict(self, *, rows: bool = True) -> dict[str, npt.NDArray[Any]]:
        """Everything that changes, as plain arrays (copies); between commit and plan.

        Args:
            rows: the buffered rows too; False = whoever loads the state can fetch them.
        """
        self._committed("state")
        head = {"capacity": np.array(self.capacity), "filled": np.array(self.filled)}
        head["started"] = np.array(self._started)
        kept = {"rows": self._rows.copy()} if rows else {}
        return head | kept | {f"ledger.{k}": v for k, v in self._ledger.state_dict().items()}

    def load_state_dict(
        self,
        state: dict[str, npt.NDArray[Any]],
        fetch: Callable[[Ids], Rows] | None = None,
    ) -> None:
        """Take over the state of a buffer of the same capacity, width, dtype and policy.

        Args:
            fetch: gives the rows ``[n, width]`` of int64 ``[n]`` ids, for a state without rows.
        """
        rows = state.get("rows", self._rows)
        self._check_alike(int(state["capacity"]), rows)
        inner = {k.removeprefix("ledger."): v for k, v in state.items() if k.startswith("ledger.")}
        self._ledger.load_state_dict(inner)
        self._rows = rows.astype(self.dtype)
        if "rows" not in state and self.width:
            if fetch is None:
                raise BufferUseError("the state holds no rows; say how to fetch them")
            ids, slots = self._ledger.slots()
            self._rows[slots] = self._checked(fetch(ids), len(ids), "fetched rows")
        self.filled = int(state["filled"])
        self._started = bool(state["started"])
        self._open = None

    def take_over(self, other: PersistentBuffer) -> None:
        """Become a copy of a buffer of the same capacity, width, dtype and policy.

        As by ``load_state_dict(other.state_dict())``, but a :class:`_CopiedLedger` is quicker.
        """
        if not isinstance(self._ledger, _CopiedLedger):
            self.load_state_dict(other.state_dict())
            return
        self._check_alike(other.capacity, other._rows)
        other._committed("state")
        self._ledger.take_over(other._ledger)
        self._rows = other._rows.copy()
        self.filled = other.filled
        self._started = other._started
        self._open = None

    def _check_alike(self, capacity: int, rows: Rows) -> None:
        if capacity != self.capacity or rows.shape != self._rows.shape:
            raise BufferUseError(
                f"the state is of a buffer of {capacity} slots of width "
                f"{rows.shape[1]}, this one has {self.capacity} of width {self.width}"
            )

    def _committed(self, what: str) -> None:
        if self._open is not None:
            raise BufferUseError(f"commit the last plan before the {what} are read")


@runtime_checkable
class _CopiedLedger(Protocol):
    """A ledger that becomes a copy of another one quicker than by way of its state."""

    def take_over(self, other: Any) -> None:
        """Become a copy of a ledger of the same class, capacity and rule."""


def _listening(ledger: Ledger, policy: Policy) -> AnnouncedLedger | None:
    """The ledger, if the policy looks ahead."""
    if not policy.window:
        return None
    if not isinstance(ledger, AnnouncedLedger):
        raise BufferUseError(
            f"{type(policy).__name__} has a window of {policy.window} minibatches, but its ledger "
            f"lacks the methods of {AnnouncedLedger.__module__}.AnnouncedLedger"
        )
    return ledger


def _copy_rows(source: Rows, source_at: Ids, target: Rows, target_at: Ids) -> None:
    """``target[target_at[i]] = source[source_at[i]]``, for rows as by :func:`_as_words`."""
    from rudder.buffer.kernels.rows import copy_rows, stream_rows

    many = source.shape[1] * source.itemsize * len(source_at) >= _STREAMED
    copy = stream_rows if many and source.dtype == np.uint64 else copy_rows
    copy(source, source_at, target, target_at)


def _as_words(*arrays: Rows) -> list[Rows]:
    """The same memory as words of 8 bytes, which copy faster, or, if need be, as bytes."""
    if arrays[0].dtype.itemsize * arrays[0].shape[1] % 8 == 0 and not any(
        array.ctypes.data % 8 for array in arrays
    ):
        return [_seen_as(array, np.dtype(np.uint64)) for array in arrays]
    return [_seen_as(array, np.dtype(np.uint8)) for array in arrays]


def _seen_as(rows: Rows, dtype: np.dtype[Any]) -> Rows:
    if rows.size == 0:
        return np.empty((len(rows), 0), dtype)
    return np.require(rows, None, ["C", "W", "A"]).view(dtype)
