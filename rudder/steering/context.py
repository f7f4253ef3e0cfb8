"""The context builder: what followed each decision.

A decision applied at minibatch *m* is judged by two windows of equal length *L*: the minibatches
*m-L … m-1* before and *m … m+L-1* after. *L* is ``window`` (8 unless told otherwise), or less where
another replacement comes closer than that on either side, so that one comparison spans one change
of the buffer only; the end of the run cuts the window after likewise.

- *%-Hits* compares hits per remote node sampled, *communication* the rows fetched, replacement rows
  included, both by the thresholds of :mod:`rudder.decision`.
- *reward* in bytes is what was saved minus what was spent:
  saved = (misses before - misses after) x row bytes, over the two windows;
  spent = (fetched after - misses after) x row bytes, the replacement rows that were not misses.
  A replacement row that was a miss anyway is among the misses, in neither twice.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from rudder.decision import Decision, effect_on_communication, effect_on_hits
from rudder.observation import Past
from rudder.steering.collector import hit_rate_change, relative_change

if TYPE_CHECKING:
    from rudder.result import MinibatchRow


class _Sums(NamedTuple):
    sampled: int = 0
    hits: int = 0
    misses: int = 0
    fetched: int = 0

    def since(self, earlier: _Sums) -> _Sums:
        return _Sums(*(now - then for now, then in zip(self, earlier, strict=True)))


@dataclass(slots=True)
class _Applied:
    question: int
    minibatch: int
    decision: Decision
    limit: int
    replaced: int = 0
    past: Past | None = None


class Settled(NamedTuple):
    """A decision whose effects are known: the question's index, the minibatch pulls done, both."""

    question: int
    settled_at: int
    past: Past


class ContextBuilder:
    """Keeps the last decisions and settles their effects; constant work and memory per minibatch.

    Args:
        row_bytes: bytes of one feature row.
        history: decisions that :meth:`history` returns at most.
        window: longest window before and after, in minibatches.
    """

    def __init__(self, row_bytes: int, history: int = 8, window: int = 8) -> None:
        if history < 0 or window < 1:
            raise ValueError(f"history={history} must be >= 0 and window={window} >= 1")
        self._row_bytes = row_bytes
        self._window = window
        self._history: deque[_Applied] = deque(maxlen=history)
        self._pending: list[_Applied] = []
        # Running sums after each minibatch; the last one stands for self._count minibatches. A
        # window before and one after a decision never reach back further than 2 x window.
        self._sums: deque[_Sums] = deque([_Sums()], maxlen=2 * window + 1)
        self._count = 0
        self._last_replacement = 0

    def applied(self, question: int, decision: Decision) -> None:
        """The next minibatch is pulled under this decision."""
        limit = min(self._window, self._count - self._last_replacement)
        # A transcript is for people: a controller does not read its own.
        entry = _Applied(question, self._count, replace(decision, details=None), limit)
        self._history.append(entry)
        self._pending.append(entry)

    def add(self, row: MinibatchRow) -> list[Settled]:
        """Take the final row of the next minibatch; returns what it settles."""
        settled = []
        if self._pending and self._pending[-1].minibatch == self._count:
            self._pending[-1].replaced = row.replaced
        if row.replaced:
            settled = self._settle_cut()
            self._last_replacement = self._count
        last = self._sums[-1]
        self._sums.append(
            _Sums(
                last.sampled + row.remote_sampled,
                last.hits + row.hits,
                last.misses + row.misses,
                last.fetched + row.fetched,
            )
        )
        self._count += 1
        due = [p for p in self._pending if 0 < p.limit <= self._count - p.minibatch]
        return settled + [self._settle(p, p.limit) for p in due]

    def finish(self) -> list[Settled]:
        """Settle what the end of the run cuts short; at least one minibatch must have followed."""
        return self._settle_cut()

    def history(self) -> tuple[Past, ...]:
        """The last decisions, oldest first."""
        return tuple(p.past or self._unsettled(p) for p in self._history)

    def _settle_cut(self) -> list[Settled]:
        """Settle every decision that was applied before the minibatch about to be added."""
        cut = [(p, min(p.limit, self._count - p.minibatch)) for p in self._pending]
        return [self._settle(p, length) for p, length in cut if length > 0]

    def _settle(self, entry: _Applied, length: int) -> Settled:
        at = entry.minibatch
        before = self._after(at).since(self._after(at - length))
        after = self._after(at + length).since(self._after(at))
        hits = hit_rate_change(before.hits, before.sampled, after.hits, after.sampled)
        entry.past = Past(
            minibatch=at,
            decision=entry.decision,
            replaced=entry.replaced,
            window=length,
            hit_rate_change=hits,
            communication_change=relative_change(before.fetched, after.fetched),
            hits_effect=effect_on_hits(0.0, hits),
            communication_effect=effect_on_communication(before.fetched, after.fetched),
            reward=float((before.misses - after.fetched) * self._row_bytes),
        )
        self._pending.remove(entry)
        return Settled(entry.question, self._count, entry.past)

    def _after(self, minibatches: int) -> _Sums:
        return self._sums[len(self._sums) - 1 - (self._count - minibatches)]

    @staticmethod
    def _unsettled(entry: _Applied) -> Past:
        return Past(
            minibatch=entry.minibatch,
            decision=entry.decision,
            replaced=entry.replaced,
            window=0,
            hit_rate_change=0.0,
            communication_change=0.0,
            hits_effect=None,
            communication_effect=None,
            reward=0.0,
        )
