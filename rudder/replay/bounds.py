"""Bounds of what any buffer of a size could save on a trace: offline optimum, best static set.

They see the whole trace and steer nothing: a run is compared with them. Both take the minibatches
one at a time, in order, so that a trace of any length passes through.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.jit import jit
from rudder.policies.base import Ids

Marks = npt.NDArray[np.int32]


class MinBound:
    """Belady's MIN with bypass for one trainer: the fewest rows that must be fetched.

    After each minibatch MIN keeps, of buffer and minibatch together, the ``capacity`` nodes that
    are used next. No policy fetches fewer rows: fetching a row ahead of its use costs as much as
    missing it.

    It is computed forwards. Between two uses of a node lies a gap; a use is a hit iff some slot
    held the node over the whole gap. So MIN serves as many gaps as it can with ``capacity`` slots,
    each slot one gap at a time: interval scheduling, for which taking gaps in the order of their
    ends, each into the slot that was freed last before it starts, is optimal (Faigle and Nawijn
    1995, Carlisle and Lloyd 1995), after every minibatch and not at the end only. Slots
    freed at the same minibatch are alike, so counts of them suffice, and a count that reached zero
    is skipped for good (union by path halving). A minibatch costs nearly O(its ids); memory is one
    int32 per node of the graph and two int64 per minibatch. A test holds it against the definition
    and against exhaustive search.

    Args:
        capacity: slots.
        filled: int64, distinct: what the buffer holds before the first minibatch.
        nodes: of the graph, where known; else memory grows with the largest id seen.

    Attributes:
        sampled, hits: remote nodes so far, and those that MIN found in its buffer.
        replaced: rows that entered its buffer and were found there later; others need not enter.
    """

    def __init__(self, capacity: int, filled: Ids, nodes: int = 0) -> None:
        if len(filled) > capacity:
            raise ValueError(f"{len(filled)} rows do not fit into {capacity} slots")
        # mark[id] = 2 * (minibatch of the last use, from 1; 0 = the fill) + (was it in the buffer)
        self._mark: Marks = np.full(nodes, -1, np.int32)
        self._reserve_nodes(filled)
        self._mark[filled] = 1
        # free[t] counts the slots that were freed at minibatch t; slot 0 of `below` is "none", and
        # below[t + 1] leads to the last t' <= t with free[t'] > 0.
        self._free: Ids = np.zeros(1024, np.int64)
        self._below: Ids = np.zeros(1025, np.int64)
        self._free[0] = capacity
        self._below[1] = 1 if capacity else 0
        self._minibatch = 0
        self.sampled = self.hits = self.replaced = 0

    @property
    def fetched(self) -> int:
        """Rows that MIN fetched so far."""
        return self.sampled - self.hits

    def add(self, remote_ids: Ids) -> int:
        """Take the next minibatch's remote nodes, distinct int64 ``[n]``; returns MIN's hits."""
        self._minibatch += 1
        self._reserve_nodes(remote_ids)
        self._reserve_minibatch()
        hits, replaced = _serve(self._mark, self._free, self._below, self._minibatch, remote_ids)
        self.sampled += len(remote_ids)
        self.hits += hits
        self.replaced += replaced
        return int(hits)

    def _reserve_nodes(self, ids: Ids) -> None:
        most = int(ids.max()) + 1 if len(ids) else 0
        if most > len(self._mark):
            grown = np.full(max(most, 2 * len(self._mark)), -1, np.int32)
            grown[: len(self._mark)] = self._mark
            self._mark = grown

    def _reserve_minibatch(self) -> None:
        if self._minibatch >= len(self._free):
            more = np.zeros_like(self._free)
            self._free = np.concatenate([self._free, more])
            self._below = np.concatenate([self._below, more])


@jit
def _serve(mark: Marks, free: Ids, below: Ids, now: int, ids: Ids) -> Any:
    hits = replaced = 0
    for i in range(len(ids)):
        node = ids[i]
        last = mark[node]
        hit = 0
        if last >= 0:
            at = (last >> 1) + 1
            while below[at] != at:
                below[at] = below[below[at]]
                at = below[at]
            if at:
                free[at - 1] -= 1
                if free[at - 1] == 0:
                    below[at] = at - 1
                hit = 1
                replaced += 1 - (last & 1)
        hits += hit
        mark[node] = 2 * now + hit
    free[now] = hits
    below[now + 1] = now + 1 if hits else now
    return hits, replaced


class StaticBound:
    """The best set that is filled once and never changed: the nodes sampled most often.

    Memory is one int64 per node of the graph.

    Args:
        nodes: of the graph, where known; else memory grows with the largest id seen.
    """

    def __init__(self, nodes: int = 0) -> None:
        self._uses: Ids = np.zeros(nodes, np.int64)
        self.sampled = 0

    def add(self, remote_ids: Ids) -> None:
        """Take the next minibatch's remote nodes, distinct int64 ``[n]``."""
        if not len(remote_ids):
            return
        most = int(remote_ids.max()) + 1
        if most > len(self._uses):
            grown = np.zeros(max(most, 2 * len(self._uses)), np.int64)
            grown[: len(self._uses)] = self._uses
            self._uses = grown
        self._uses[remote_ids] += 1
        self.sampled += len(remote_ids)

    def best(self, capacity: int) -> Ids:
        """The set: int64 ``[<= capacity]``, most used first, ties by smaller id."""
        used = np.flatnonzero(self._uses)
        return used[np.argsort(-self._uses[used], kind="stable")][:capacity]

    def fetched(self, capacity: int) -> int:
        """Rows fetched beside a buffer of the best set; its fill is not among them."""
        return self.sampled - int(self._uses[self.best(capacity)].sum())
