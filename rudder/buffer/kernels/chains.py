"""Records in order: buckets of doubly linked chains.

A record's ``KEY`` says where it stands, ties go to the smaller id, and its bucket follows from the
key: keys in a bucket are below those of the next. So a choice of the first records takes whole
buckets, and has to look at the order within the last one only.

A bucket is two chains, rows of an int64 ``[2 * buckets, 4]`` array: number ``2 * bucket`` is kept
in order (by key, then id), ``2 * bucket + 1`` holds what did not fit its end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rudder.buffer.kernels.memory import AHEAD, Ids, hint, inline
from rudder.buffer.kernels.records import CHAIN, ID, KEY, NEXT, PREV
from rudder.jit import jit

HEAD, TAIL, COUNT, CHAIN_WIDTH = range(4)
"""Columns of the chain arrays."""
_LANES = 8
"""Chains that are followed at once."""
_DONE = 1 << 62
"""Place in the output of a lane for which no chain is left."""


@inline
def hint_neighbours(rec: Ids, found: Ids, i: int) -> None:
    """The neighbours in its chain of a record AHEAD of ``i`` will be read."""
    r = found[min(i + AHEAD, len(found) - 1)]
    if r >= 0:
        hint(rec, rec[r, NEXT])
        hint(rec, rec[r, PREV])


@inline
def _before(rec: Ids, a: int, b: int) -> Any:
    return rec[a, KEY] < rec[b, KEY] or (rec[a, KEY] == rec[b, KEY] and rec[a, ID] < rec[b, ID])


@inline
def _append(rec: Ids, chains: Ids, c: int, r: int) -> None:
    tail = chains[c, TAIL]
    if chains[c, COUNT] == 0:
        tail = -1
        chains[c, HEAD] = r
    else:
        rec[tail, NEXT] = r
    rec[r, PREV] = tail
    rec[r, NEXT] = -1
    rec[r, CHAIN] = c
    chains[c, TAIL] = r
    chains[c, COUNT] += 1


@inline
def link(rec: Ids, chains: Ids, bucket: int, r: int) -> None:
    c = 2 * bucket
    fits = chains[c, COUNT] == 0 or _before(rec, chains[c, TAIL], r)
    _append(rec, chains, c if fits else c + 1, r)


@inline
def unlink(rec: Ids, chains: Ids, r: int) -> None:
    c = rec[r, CHAIN]
    before = rec[r, PREV]
    after = rec[r, NEXT]
    if before >= 0:
        rec[before, NEXT] = after
    else:
        chains[c, HEAD] = after
    if after >= 0:
        rec[after, PREV] = before
    else:
        chains[c, TAIL] = before
    chains[c, COUNT] -= 1
    rec[r, CHAIN] = -1


@inline
def size_of(chains: Ids, bucket: int) -> Any:
    return chains[2 * bucket, COUNT] + chains[2 * bucket + 1, COUNT]


@inline
def _less(keys: Ids, ids: Ids, a: int, b: int) -> Any:
    return keys[a] < keys[b] or (keys[a] == keys[b] and ids[a] < ids[b])


@jit
def _select(rec: Ids, items: Ids, need: int) -> None:
    """Reorder ``items`` so that the ``need`` first by (key, id) stand in front (quickselect)."""
    keys = np.empty(len(items), np.int64)
    ids = np.empty(len(items), np.int64)
    for i in range(len(items)):
        hint(rec, items[min(i + AHEAD, len(items) - 1)])
        keys[i] = rec[items[i], KEY]
        ids[i] = rec[items[i], ID]
    low = 0
    high = len(items) - 1
    while low < high:
        # The median of three as pivot; (key, id) pairs are distinct.
        mid = (low + high) // 2
        a, b, c = low, mid, high
        if _less(keys, ids, b, a):
            a, b = b, a
        if _less(keys, ids, c, b):
            b = a if _less(keys, ids, c, a) else c
        key, node = keys[b], ids[b]
        i = low
        j = high
        while i <= j:
            while keys[i] < key or (keys[i] == key and ids[i] < node):
                i += 1
            while keys[j] > key or (keys[j] == key and ids[j] > node):
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                ids[i], ids[j] = ids[j], ids[i]
                items[i], items[j] = items[j], items[i]
                i += 1
                j -= 1
        if need - 1 <= j:
            high = j
        elif need >= i + 1:
            low = i
        else:
            return


@jit
def in_order(rec: Ids, items: Ids) -> Ids:
    """``items`` in order of (key, id)."""
    ids = np.empty(len(items), np.int64)
    keys = np.empty(len(items), np.int64)
    for i in range(len(items)):
        hint(rec, items[min(i + AHEAD, len(items) - 1)])
        ids[i] = rec[items[i], ID]
    items = items[np.argsort(ids, kind="mergesort")]
    for i in range(len(items)):
        keys[i] = rec[items[i], KEY]
    return items[np.argsort(keys, kind="mergesort")]


@jit
def gather(rec: Ids, chains: Ids, which: Ids, out: Ids) -> None:
    """Write the records of some chains to ``out``, chain after chain, each in order.

    Several chains at once, and each from both ends: whoever follows a chain waits for every read.
    """
    lanes = min(_LANES, len(which))
    first = np.zeros(lanes, np.int64)
    last = np.full(lanes, -1, np.int64)
    head = np.empty(lanes, np.int64)
    tail = np.empty(lanes, np.int64)
    coming = end = 0
    left = lanes
    while left:
        for lane in range(lanes):
            i, j = first[lane], last[lane]
            if i > j:  # this lane's chain is done, or none was begun
                if coming < len(which):
                    c = which[coming]
                    size = chains[c, COUNT]
                    first[lane], last[lane] = end, end + size - 1
                    head[lane], tail[lane] = chains[c, HEAD], chains[c, TAIL]
                    end += size
                    coming += 1
                elif i != _DONE:
                    first[lane], last[lane] = _DONE, _DONE - 1
                    left -= 1
                continue
            h, t = head[lane], tail[lane]
            out[i] = h
            out[j] = t
            head[lane], tail[lane] = rec[h, NEXT], rec[t, PREV]
            first[lane], last[lane] = i + 1, j - 1


@jit
def clear(chains: Ids, bucket: int) -> None:
    for c in (2 * bucket, 2 * bucket + 1):
        chains[c, COUNT] = 0
        chains[c, HEAD] = -1
        chains[c, TAIL] = -1


@jit
def take_part(rec: Ids, chains: Ids, bucket: int, need: int, budget: int, out: Ids) -> None:
    """Unlink the ``need`` first of a bucket that holds more than that."""
    c = 2 * bucket
    tidy = chains[c, COUNT]
    loose = chains[c + 1, COUNT]
    if loose == 0:
        for i in range(need):
            out[i] = chains[c, HEAD]
            unlink(rec, chains, out[i])
        return
    if tidy + loose <= budget:
        items = np.empty(tidy + loose, np.int64)
        gather(rec, chains, np.arange(c, c + 2), items)
        _select(rec, items, need)
        out[:need] = items[:need]
        if 2 * need > len(items):  # cheaper to link the others anew
            clear(chains, bucket)
            for i in range(need, len(items)):
                _append(rec, chains, c + 1, items[i])
            return
        for i in range(need):
            unlink(rec, chains, items[i])
        return
    # A bucket that is large against the work at hand is put in order once, not looked through
    # again at every replacement.
    items = np.empty(loose, np.int64)
    gather(rec, chains, np.arange(c + 1, c + 2), items)
    items = in_order(rec, items)
    if 4 * loose > tidy:
        first = chains[c, HEAD] if tidy else -1
        clear(chains, bucket)
        for i in range(loose):
            while first >= 0 and _before(rec, first, items[i]):
                after = rec[first, NEXT]
                _append(rec, chains, c, first)
                first = after
            _append(rec, chains, c, items[i])
        while first >= 0:
            after = rec[first, NEXT]
            _append(rec, chains, c, first)
            first = after
        for i in range(need):
            out[i] = chains[c, HEAD]
            unlink(rec, chains, out[i])
        return
    j = 0
    for i in range(need):
        head = chains[c, HEAD] if chains[c, COUNT] else -1
        if head < 0 or (j < loose and _before(rec, items[j], head)):
            head = items[j]
            j += 1
        out[i] = head
        unlink(rec, chains, head)


@jit
def take(
    rec: Ids, chains: Ids, bucket: int, way: int, need: int, extra: int, out: Ids
) -> int:  # fmt: skip
    """Unlink the ``need`` first records, bucket by bucket in direction ``way``, into ``out``.

    Returns the bucket that was looked at last. There are enough records in that direction.
    """
    at = whole = 0
    first = bucket
    while at < need:  # whole buckets
        size = size_of(chains, bucket)
        if size > need - at:
            break
        whole += size > 0
        at += size
        bucket += way
    which = np.empty(2 * whole, np.int64)
    n = 0
    for b in range(first, bucket, way):
        if size_of(chains, b):
            which[n], which[n + 1] = 2 * b, 2 * b + 1
            n += 2
    gather(rec, chains, which, out)
    for c in which[::2]:
        clear(chains, c // 2)
    if at < need:
        take_part(rec, chains, bucket, need - at, 4 * (need + extra) + 256, out[at:])
    return bucket
