"""What a replacement policy is: it says *which* nodes leave the buffer and which enter.

*When* and *how much* is the controller's. There are three ways to write a policy:

- :class:`DecayPolicy`: pure parameters (:class:`DecayRule`) of the decayed-score family. All work
  is done by compiled kernels; a minibatch costs O(its remote nodes).
- :class:`HookPolicy`: three hooks on numpy arrays; a whole policy takes about 15 lines. It costs
  what its hooks cost.

- :class:`AdmittingPolicy`: a rule (:class:`AdmissionRule`) by which rows of the current pull enter
  at every minibatch, such as LRU; compiled too.

All give the buffer a *ledger* (:class:`Ledger`): who is buffered where, and what happens at a
minibatch. A policy that fits none brings its own. This module imports numpy only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from rudder.errors import SpecError

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

STALE_SLACK = 1e-9
"""A node is stale iff its score < threshold * (1 - STALE_SLACK): robust against rounding."""
TIE_DIGITS = 9
"""Scores (and counts) are compared by ``ln(value) - step * ln(decay)`` rounded to this many
decimals: two values that differ by less than about 1e-9 of themselves tie, however they were
computed. (The expression does not change while a node is idle, so the time of comparison does not
matter.) Ties go to the smaller id."""

MAX_WINDOW = 62
"""Minibatches that can be announced beyond the current one: a record has a bit for each."""

MIN_DECAY_STEP = 1e-5
"""Decay per minibatch lies between this and 1 minus this."""


@dataclass(frozen=True, slots=True)
class PolicyTags:
    """What a policy is like.

    Attributes:
        self_deciding: it admits at every minibatch, whatever the controller says, so that it pairs
            only with the controller ``always``.
        static: it never replaces.
    """

    self_deciding: bool = False
    static: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What a ledger did at one minibatch of ``n`` remote nodes.

    Attributes:
        hit_at: int64 ``[hits]``: positions of the buffered nodes in the minibatch, ascending.
        hit_slots: int64 ``[hits]``: their slots.
        miss_at: int64 ``[misses]``: positions of the other nodes, ascending.
        entrants: int64 ``[replaced]``: ids that enter the buffer.
        entrant_slots: int64 ``[replaced]``: where; free slots or those of the victims.
        entrant_miss: int64 ``[replaced]``: index into the misses, -1 = not in this minibatch.
        stale: stale nodes before the replacement.
        occupied: slots that hold a node after the replacement.
    """

    hit_at: Ids
    hit_slots: Ids
    miss_at: Ids
    entrants: Ids
    entrant_slots: Ids
    entrant_miss: Ids
    stale: int
    occupied: int


class Ledger(Protocol):
    """Who is buffered in which slot, and the policy's memory."""

    def fill(self, ids: Ids) -> None:
        """Put ``ids[i]`` (distinct) into slot ``i``; only once, before the first minibatch."""

    def advance(self, remote_ids: Ids, share: float | None) -> Choice:
        """One minibatch: look up, update, then replace that share (None = keep)."""

    def slots(self) -> tuple[Ids, Ids]:
        """Ids of the buffered nodes and their slots, in order of slot."""

    def scores(self, ids: Ids) -> Floats:
        """Scores of buffered nodes, now; NaN where a node is not buffered."""

    def counts(self, ids: Ids) -> Floats:
        """Candidate counts, now; 0 for a node that is no candidate."""

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Everything, as plain arrays."""

    def load_state_dict(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Take over what :meth:`state_dict` returned."""


@runtime_checkable
class AnnouncedLedger(Ledger, Protocol):
    """A ledger that is told of minibatches before they are planned: if ``Policy.window``."""

    def announce(self, remote_ids: Ids) -> None:
        """The next minibatch that has not been announced will ask for these."""

    def withdraw(self) -> None:
        """Minibatches that are announced and not planned will not come."""


class Policy:
    """Base of every replacement policy.

    The constructor takes the parameters of the spec as keyword arguments.
    """

    tags: ClassVar[PolicyTags] = PolicyTags()
    refetch: bool = False
    """Entrants are fetched again even when they are among the misses of the same pull."""
    window: int = 0
    """Minibatches beyond the current one that are sampled and announced before it is planned. Above
    0 the ledger is an :class:`AnnouncedLedger`."""
    presample: int = 0
    """Minibatches whose accesses are counted before the run: the nodes that most of them need are
    the initial fill."""

    def ledger(self, capacity: int) -> Ledger:
        """A fresh ledger of ``capacity`` slots."""
        raise TypeError(f"{type(self).__name__} must derive from DecayPolicy or HookPolicy")


def replaced_rows(share: float, replaceable: int, candidates: int) -> int:
    """Rows to replace: ``min(ceil(share * replaceable), candidates)``.

    ``replaceable`` counts stale nodes and free slots alike: a free slot holds nothing, so it goes
    before every stale node.
    """
    return min(math.ceil(share * replaceable), candidates)


@dataclass(frozen=True, slots=True)
class DecayRule:
    """Parameters of the decayed-score family.

    At the end of each minibatch a buffered node's score becomes ``score * on_access + gain`` if it
    was accessed, else ``score * decay``. A remote node that was missed becomes a candidate: its
    count becomes ``count * count_on_miss + 1`` in a minibatch that misses it, else
    ``count * count_decay``. Candidates are the nodes that are not buffered and have a count above
    0. A value is held at 1e-300 from below at each access.

    Attributes:
        decay, on_access, gain: how a score moves.
        threshold: a score below it (see :data:`STALE_SLACK`) is stale.
        initial: score of the nodes of the initial fill.
        count_decay, count_on_miss: how a count moves.
        entrant: what an entrant's score starts with: its ``count`` or ``initial``.
        victim: what a victim's count starts with: ``zero`` (it is no candidate until it is missed
            again) or its ``score``.
    """

    threshold: float
    decay: float = 0.95
    on_access: float = 1.0
    gain: float = 1.0
    initial: float = 1.0
    count_decay: float = 0.95
    count_on_miss: float = 0.95
    entrant: Literal["count", "initial"] = "count"
    victim: Literal["zero", "score"] = "zero"

    def __post_init__(self) -> None:
        # Closer to 1, buckets of one step of decay would be too many.
        for name in ("decay", "count_decay"):
            value = getattr(self, name)
            if not MIN_DECAY_STEP <= value <= 1 - MIN_DECAY_STEP:
                raise SpecError(
                    f"{name} = {value!r} must lie in {MIN_DECAY_STEP}..1-{MIN_DECAY_STEP}"
                )
        for name in ("on_access", "count_on_miss"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise SpecError(f"{name} = {value!r} must lie in 0..1")
        for name in ("threshold", "initial"):
            value = getattr(self, name)
            if not 1e-200 <= value <= 1e200:
                raise SpecError(f"{name} = {value!r} must lie in 1e-200..1e200")
        if not 0 <= self.gain <= 1e200:
            raise SpecError(f"gain = {self.gain!r} must lie in 0..1e200")
        if self.on_access + self.gain == 0:
            raise SpecError("on_access and gain are both 0: an access would end a node's score")


class DecayPolicy(Policy):
    """A policy of the decayed-score family: subclasses set :attr:`rule`.

    >>> class Slow(DecayPolicy):
    ...     def __init__(self, decay=0.99):
    ...         self.rule = DecayRule(decay=decay, threshold=decay)
    """

    rule: DecayRule

    def ledger(self, capacity: int) -> Ledger:
        from rudder.buffer.decay import DecayLedger

        return DecayLedger(capacity, self.rule, static=self.tags.static)


@dataclass(frozen=True, slots=True)
class AdmissionRule:
    """What a buffered or missed node is worth, for policies that admit at every minibatch.

    At the end of a minibatch the buffer keeps the ``capacity`` nodes worth most, of those that it
    held and those that were missed. Free slots are filled first. Then the missed nodes, those
    worth most first (ties: smaller id), displace the buffered ones worth least (ties: smaller
    id), one by one, as long as they are worth *more*: what ties stays. A missed node that is not
    let in is served all the same. Nothing is fetched but misses.

    Worth:

    - a node that one of the announced minibatches needs is worth more than one that none needs,
      and the more, the nearer the next of them is; ties by ``order``;
    - ``recency``: the last minibatch that needed it (initial fill: 0); ``count``: the number of
      minibatches so far that needed it, whether it was buffered or not, each multiplied by
      ``decay`` per minibatch since; the initial fill starts with 1. Compared, if decayed, as
      :data:`TIE_DIGITS` says.

    Attributes:
        order: ``recency`` or ``count``.
        decay: of counts, per minibatch; 1 = none.
        window: minibatches ahead that are announced; 0..62, with undecayed counts only.
    """

    order: Literal["recency", "count"]
    decay: float = 1.0
    window: int = 0

    def __post_init__(self) -> None:
        if self.decay != 1 and not MIN_DECAY_STEP <= self.decay <= 1 - MIN_DECAY_STEP:
            raise SpecError(
                f"decay = {self.decay!r} must lie in {MIN_DECAY_STEP}..1-{MIN_DECAY_STEP}"
            )
        window = self.window
        if isinstance(window, bool) or not isinstance(window, int) or not 0 <= window <= MAX_WINDOW:
            raise SpecError(f"window = {window!r} must be a count of minibatches, 0..{MAX_WINDOW}")
        if self.window and (self.order != "count" or self.decay != 1):
            raise SpecError("a window goes with undecayed counts only")


class AdmittingPolicy(Policy):
    """A policy that lets rows of the current pull in at every minibatch: sets :attr:`rule`."""

    tags: ClassVar[PolicyTags] = PolicyTags(self_deciding=True)
    rule: AdmissionRule

    def ledger(self, capacity: int) -> Ledger:
        from rudder.buffer.admission import AdmissionLedger

        return AdmissionLedger(capacity, self.rule)


@dataclass(frozen=True, slots=True)
class Minibatch:
    """What a hook policy sees of a minibatch.

    Attributes:
        step: number of the minibatch, from 1.
        hit_slots, hit_ids: int64, the buffered nodes among the minibatch's remote nodes.
        missed_ids: int64, ascending, the others.
        slot_ids: int64 ``[capacity]``: id in each slot, -1 = free. Read only.
    """

    step: int
    hit_slots: Ids
    hit_ids: Ids
    missed_ids: Ids
    slot_ids: Ids


class HookPolicy(Policy):
    """A policy written as hooks on numpy arrays.

    For each minibatch :meth:`_update` is called, then :meth:`_stale`, and, if rows are to be
    replaced, :meth:`_candidates` and :meth:`_placed`. What the policy remembers are its attributes.

    >>> class Fifo(HookPolicy):
    ...     def _reset(self, capacity):
    ...         self.since = np.zeros(capacity, np.int64)
    ...     def _stale(self, now):
    ...         held = np.flatnonzero(now.slot_ids >= 0)
    ...         return held[np.argsort(self.since[held], kind="stable")]
    ...     def _candidates(self, now):
    ...         return now.missed_ids
    ...     def _placed(self, slots, ids, step):
    ...         self.since[slots] = step
    """

    def ledger(self, capacity: int) -> Ledger:
        from rudder.buffer.hooks import HookLedger

        self._reset(capacity)
        return HookLedger(capacity, self)

    def _reset(self, capacity: int) -> None:
        """Hook: forget everything; the buffer has ``capacity`` slots."""

    def _update(self, now: Minibatch) -> None:
        """Hook: take note of a minibatch."""

    def _stale(self, now: Minibatch) -> Ids:
        """Hook: slots that may be replaced, those to go first in front."""
        raise TypeError(f"{type(self).__name__} must override _stale(now)")

    def _candidates(self, now: Minibatch) -> Ids:
        """Hook: ids that may enter (distinct, not buffered), those to come first in front."""
        raise TypeError(f"{type(self).__name__} must override _candidates(now)")

    def _placed(self, slots: Ids, ids: Ids, step: int) -> None:
        """Hook: ``ids`` now lie in ``slots``: the initial fill (step 0) or a replacement."""

    def _scores(self, slots: Ids) -> Floats:
        """Hook: a number per slot for people to look at; the policy itself need not use it."""
        return np.zeros(len(slots))

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """The attributes that are arrays or numbers."""
        kinds = (np.ndarray, int, float)
        return {k: np.array(v) for k, v in vars(self).items() if isinstance(v, kinds)}

    def load_state_dict(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Set the attributes of :meth:`state_dict`."""
        for name, value in state.items():
            old = getattr(self, name, None)
            setattr(self, name, type(old)(value) if isinstance(old, int | float) else value.copy())
