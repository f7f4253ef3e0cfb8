"""Futures of a trainer's buffer that were rolled out, kept for as long as they may come true."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rudder.buffer import PersistentBuffer
from rudder.decision import Decision
from rudder.policies.base import Ids


@dataclass
class Path:
    """Minibatches from the coming one on, the first under one decision, the others under another.

    Attributes:
        first, then: the decisions: the share of the stale slots to replace, None = keep.
        buffer: a copy of the trainer's, after the last of them.
        rows: fetched at each of them.
    """

    first: float | None
    then: float | None
    buffer: PersistentBuffer
    rows: deque[int] = field(default_factory=deque)

    def fetched(self, at: int, remote_ids: Ids, decision: Decision) -> int:
        """Rows fetched at the minibatch ``at`` places ahead: known, or planned if it comes next."""
        if at == len(self.rows):
            plan = self.buffer.plan(remote_ids, decision)
            self.buffer.commit(plan)
            self.rows.append(plan.fetched)
        return self.rows[at]


class Paths:
    """The paths that still may come true.

    The question after a roll-out is rolled out over the same minibatches and one more. If what was
    decided in between is what a path began with, only that one is left to plan.

    Args:
        make: a buffer of the trainer's size and policy.
    """

    def __init__(self, make: Callable[[], PersistentBuffer]) -> None:
        self._make = make
        self._open: list[Path] = []
        self._spare: list[PersistentBuffer] = []

    def follow(self, buffer: PersistentBuffer, first: Decision, then: Decision) -> Path:
        """The path on which ``buffer`` is led by these decisions, one at every minibatch."""
        wanted = _share(first), _share(then)
        for path in self._open:
            if (path.first, path.then) == wanted:
                return path
        copy = self._spare.pop() if self._spare else self._make()
        copy.take_over(buffer)
        self._open.append(Path(*wanted, copy))
        return self._open[-1]

    def came(self, decision: Decision | None) -> None:
        """A minibatch was planned under this decision: what foresaw another one is given up."""
        foreseen, self._open = self._open, []
        for path in foreseen:
            if path.rows and path.first == _share(decision):
                path.rows.popleft()
                path.first = path.then
                self._open.append(path)
            else:
                self._spare.append(path.buffer)


def _share(decision: Decision | None) -> float | None:
    return decision.share if decision is not None and decision.replace else None
