"""One record per remote node that was seen, found by the node's id.

A record is a row of an int64 ``[M, 8]`` array, one cache line; column ``VALUE`` is read as float64
through a second view of the same memory. What its columns mean is the policies' (``scores.py``,
``admission.py``); where it stands in an order is kept in it too (``chains.py``).

The id map is an open-addressing table of record numbers with a fingerprint of the hash beside
each, so that a probe seldom reads a wrong record.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rudder.buffer.kernels.memory import AHEAD, Ids, hint, inline
from rudder.jit import jit

ID, VALUE, KEY, TOUCHED, SLOT, NEXT, PREV, CHAIN = range(8)
"""Columns of a record. SLOT: -1 = not buffered; ``-2 - j`` = miss ``j`` of step TOUCHED."""
(
    RECORDS, STEP, OCCUPIED, STALE, LOWEST, CANDIDATES, HIGHEST, NEEDED, SCALARS,
) = range(9)  # fmt: skip
"""Entries of a ledger's state. LOWEST, HIGHEST: bounds of the buckets in use (scores, candidates).
NEEDED: buffered nodes that the window needs."""


@inline
def _hash(node: int) -> Any:
    h = np.uint64(node)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return h ^ (h >> np.uint64(32))


@jit
def find(table: Ids, rec: Ids, node: int) -> Any:
    mask = len(table) - 1
    h = _hash(node)
    at = np.int64(h) & mask
    mark = np.int64(h >> np.uint64(33))
    while True:
        entry = table[at]
        if entry == 0:
            return -1
        if (entry >> 32) == mark:
            r = (entry & 0xFFFFFFFF) - 1
            if rec[r, ID] == node:
                return r
        at = (at + 1) & mask


@jit
def _enter(table: Ids, node: int, r: int) -> None:
    mask = len(table) - 1
    h = _hash(node)
    at = np.int64(h) & mask
    while table[at] != 0:
        at = (at + 1) & mask
    table[at] = (np.int64(h >> np.uint64(33)) << 32) | (r + 1)


@jit
def new_record(table: Ids, rec: Ids, state: Ids, node: int) -> Any:
    r = state[RECORDS]
    state[RECORDS] = r + 1
    _enter(table, node, r)
    rec[r, ID] = node
    rec[r, VALUE] = 0
    rec[r, KEY] = 0
    rec[r, TOUCHED] = 0
    rec[r, SLOT] = -1
    rec[r, NEXT] = -1
    rec[r, PREV] = -1
    rec[r, CHAIN] = -1
    return r


@jit
def rehash(table: Ids, rec: Ids, records: int) -> None:
    """Enter the first ``records`` records into an empty, larger table."""
    for r in range(records):
        _enter(table, rec[r, ID], r)


@jit
def ascending(nodes: Ids) -> bool:
    """Are the nodes at least 0, distinct and ascending?"""
    before = -1
    for i in range(len(nodes)):
        if nodes[i] <= before:
            return False
        before = nodes[i]
    return True


@jit
def find_some(table: Ids, rec: Ids, nodes: Ids, found: Ids, start: int, stop: int) -> None:
    """Records of ``nodes[start:stop]`` into ``found``, -1 = none."""
    mask = len(table) - 1
    last = len(nodes) - 1
    for i in range(start, stop):
        hint(table, np.int64(_hash(nodes[min(i + 2 * AHEAD, last)])) & mask)
        entry = table[np.int64(_hash(nodes[min(i + AHEAD, last)])) & mask]
        hint(rec, (entry & 0xFFFFFFFF) - 1)
        found[i] = find(table, rec, nodes[i])


@jit
def look_up(table: Ids, rec: Ids, nodes: Ids, found: Ids) -> None:
    """Record of each node into ``found``, -1 = none."""
    find_some(table, rec, nodes, found, 0, len(nodes))


@jit
def slots_of(table: Ids, rec: Ids, nodes: Ids, out: Ids) -> None:
    """Slot of each node into ``out``, below 0 = not buffered."""
    for i in range(len(nodes)):
        r = find(table, rec, nodes[i])
        out[i] = rec[r, SLOT] if r >= 0 else -1


@jit
def set_slots(table: Ids, rec: Ids, state: Ids, nodes: Ids, slots: Ids) -> None:
    """Say where nodes lie (-1 = no longer buffered); unknown nodes get a record."""
    for i in range(len(nodes)):
        r = find(table, rec, nodes[i])
        if r < 0:
            r = new_record(table, rec, state, nodes[i])
        rec[r, SLOT] = slots[i]


@jit
def split(rec: Ids, found: Ids, hit_at: Ids, hit_slots: Ids, miss_at: Ids) -> int:
    """Hits and misses without touching a record. Returns the number of hits."""
    hits = 0
    misses = 0
    for i in range(len(found)):
        r = found[i]
        if r >= 0 and rec[r, SLOT] >= 0:
            hit_at[hits] = i
            hit_slots[hits] = rec[r, SLOT]
            hits += 1
        else:
            miss_at[misses] = i
            misses += 1
    return hits
