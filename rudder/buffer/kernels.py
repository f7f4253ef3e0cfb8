"""Compiled kernels of the buffer: id map, decayed scores, ordered choice, row copies.

Nothing is compiled at import; machine code is cached on disk, and :func:`rudder.buffer.warm`
compiles or loads all of it ahead of the first minibatch.

**Records.** Every remote node that was seen has one record, a row of an int64 ``[M, 8]`` array (one
cache line); column ``VALUE`` is read as float64 through a second view of the same memory. The value
is the node's score if it is buffered, else its candidate count, as of step ``TOUCHED``; decay is
applied when the record is read. The id map is an open-addressing table of record numbers with a
fingerprint of the hash beside each, so that a probe seldom reads a wrong record.

**Admitting policies** keep the same records, but only buffered nodes in order: see their section.

**Order.** ``ln(value) - step * ln(decay)`` does not change while a node is idle. Rounded (see
``rudder.policies.base.TIE_DIGITS``) it is the record's ``KEY``, and records lie in buckets by it:

- buffered nodes by the step at which they become stale, if they stay idle: the stale nodes are
  those of the buckets up to now, so counting them costs one addition per minibatch;
- candidates by their key in units of one step of decay (with the sign turned, so that a smaller
  ``KEY`` is taken first in both).

Keys in a bucket are below those of the next, so a choice takes whole buckets and has to look at the
order within the last one only. A bucket is two doubly linked chains: number ``2 * bucket`` is kept
in order (by key, then id), ``2 * bucket + 1`` holds what did not fit its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rudder.jit import jit as _jit

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ID, VALUE, KEY, TOUCHED, SLOT, NEXT, PREV, CHAIN = range(8)
"""Columns of a record. SLOT: -1 = not buffered; ``-2 - j`` = miss ``j`` of step TOUCHED."""
HEAD, TAIL, COUNT, CHAIN_WIDTH = range(4)
"""Columns of the chain arrays."""
(
    RECORDS, STEP, OCCUPIED, STALE, LOWEST, CANDIDATES, HIGHEST, NEEDED, SCALARS,
) = range(9)  # fmt: skip
"""Entries of the state. LOWEST, HIGHEST: bounds of the buckets in use (scores, candidates).
NEEDED: buffered nodes that the window needs."""
(
    LN_DECAY, LN_THRESHOLD, ON_ACCESS, GAIN, INITIAL,
    LN_COUNT_DECAY, COUNT_ON_MISS, ENTRANT_COUNT, VICTIM_SCORE, PARAMETERS,
) = range(10)  # fmt: skip
"""Entries of the parameters. LN_DECAY and LN_COUNT_DECAY are -ln(decay), above 0."""

BLOCK = 256
"""Nodes that are looked up and updated together: their records fit the inner cache."""
AHEAD = 16
"""Turns of a loop between the hint that memory will be read and the reading. Records lie all over
the memory, so that a minibatch is a hundred thousand waits for it, or a few if they overlap."""
TINY = 1e-300
"""Values are held at this from below, so that their logarithm exists."""

_F = TypeVar("_F", bound=Callable[..., Any])


def _inline(function: _F) -> _F:
    """For helpers of a few instructions: as calls they cost a fifth of a minibatch's time."""
    return cast(_F, numba.njit(inline="always")(function))


def _hint_code(context: Any, array: Any, row: Any) -> Any:
    """Row ``row`` of a C-ordered array will be read soon: fetch its first cache line.

    LLVM's ``prefetch``: it changes nothing and fails never, so that any row number will do.
    """

    def code(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        found = target.make_array(kind)(target, builder, arguments[0])
        stride = cgutils.unpack_tuple(builder, found.strides)[0]
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        start = builder.bitcast(found.data, byte)
        address = builder.gep(start, [builder.mul(arguments[1], stride)])
        prefetch = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        )
        # To read (0), to be kept in every cache (3), data (1).
        builder.call(prefetch, [address, word(0), word(3), word(1)])
        return target.get_dummy_value()

    return types.void(array, types.intp), code


_hint: Any = intrinsic(_hint_code)


# --- id map -----------------------------------------------------------------------------------


@_inline
def _hash(node: int) -> Any:
    h = np.uint64(node)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return h ^ (h >> np.uint64(32))


@_jit
def _find(table: Ids, rec: Ids, node: int) -> Any:
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


@_jit
def _enter(table: Ids, node: int, r: int) -> None:
    mask = len(table) - 1
    h = _hash(node)
    at = np.int64(h) & mask
    while table[at] != 0:
        at = (at + 1) & mask
    table[at] = (np.int64(h >> np.uint64(33)) << 32) | (r + 1)


@_jit
def _new_record(table: Ids, rec: Ids, state: Ids, node: int) -> Any:
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


@_jit
def rehash(table: Ids, rec: Ids, records: int) -> None:
    """Enter the first ``records`` records into an empty, larger table."""
    for r in range(records):
        _enter(table, rec[r, ID], r)


@_jit
def ascending(nodes: Ids) -> bool:
    """Are the nodes at least 0, distinct and ascending?"""
    before = -1
    for i in range(len(nodes)):
        if nodes[i] <= before:
            return False
        before = nodes[i]
    return True


@_jit
def _find_some(table: Ids, rec: Ids, nodes: Ids, found: Ids, start: int, stop: int) -> None:
    """Records of ``nodes[start:stop]`` into ``found``, -1 = none."""
    mask = len(table) - 1
    last = len(nodes) - 1
    for i in range(start, stop):
        _hint(table, np.int64(_hash(nodes[min(i + 2 * AHEAD, last)])) & mask)
        entry = table[np.int64(_hash(nodes[min(i + AHEAD, last)])) & mask]
        _hint(rec, (entry & 0xFFFFFFFF) - 1)
        found[i] = _find(table, rec, nodes[i])


@_inline
def _hint_neighbours(rec: Ids, found: Ids, i: int) -> None:
    """The neighbours in its chain of a record AHEAD of ``i`` will be read."""
    r = found[min(i + AHEAD, len(found) - 1)]
    if r >= 0:
        _hint(rec, rec[r, NEXT])
        _hint(rec, rec[r, PREV])


@_jit
def look_up(table: Ids, rec: Ids, nodes: Ids, found: Ids) -> None:
    """Record of each node into ``found``, -1 = none."""
    _find_some(table, rec, nodes, found, 0, len(nodes))


@_jit
def slots_of(table: Ids, rec: Ids, nodes: Ids, out: Ids) -> None:
    """Slot of each node into ``out``, below 0 = not buffered."""
    for i in range(len(nodes)):
        r = _find(table, rec, nodes[i])
        out[i] = rec[r, SLOT] if r >= 0 else -1


@_jit
def set_slots(table: Ids, rec: Ids, state: Ids, nodes: Ids, slots: Ids) -> None:
    """Say where nodes lie (-1 = no longer buffered); unknown nodes get a record."""
    for i in range(len(nodes)):
        r = _find(table, rec, nodes[i])
        if r < 0:
            r = _new_record(table, rec, state, nodes[i])
        rec[r, SLOT] = slots[i]


# --- chains -----------------------------------------------------------------------------------


@_inline
def _before(rec: Ids, a: int, b: int) -> Any:
    return rec[a, KEY] < rec[b, KEY] or (rec[a, KEY] == rec[b, KEY] and rec[a, ID] < rec[b, ID])


@_inline
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


@_inline
def _link(rec: Ids, chains: Ids, bucket: int, r: int) -> None:
    c = 2 * bucket
    fits = chains[c, COUNT] == 0 or _before(rec, chains[c, TAIL], r)
    _append(rec, chains, c if fits else c + 1, r)


@_inline
def _unlink(rec: Ids, chains: Ids, r: int) -> None:
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


@_inline
def _size(chains: Ids, bucket: int) -> Any:
    return chains[2 * bucket, COUNT] + chains[2 * bucket + 1, COUNT]


# --- values -----------------------------------------------------------------------------------


@_inline
def _decayed(value: float, ln_decay: float, steps: int) -> Any:
    if steps == 0:
        return value
    return value * np.exp(-ln_decay * steps)


@_inline
def _key(ln_value: float, ln_decay: float, step: int) -> Any:
    return np.int64(np.floor((ln_value + ln_decay * step) * 1e9 + 0.5))


@_inline
def _link_score(rec: Ids, val: Floats, chains: Ids, state: Ids, par: Floats, r: int) -> None:
    """Put a buffered record, touched now, into the bucket of the step that finds it stale."""
    now = rec[r, TOUCHED]
    ln_value = np.log(val[r, VALUE])
    ahead = np.int64(np.floor((ln_value - par[LN_THRESHOLD]) / par[LN_DECAY])) + 1
    bucket: Any = max(now + ahead, 0)
    rec[r, KEY] = _key(ln_value, par[LN_DECAY], now)
    _link(rec, chains, bucket, r)
    state[LOWEST] = min(state[LOWEST], bucket)
    if bucket <= state[STEP]:
        state[STALE] += 1


@_inline
def _unlink_score(rec: Ids, chains: Ids, state: Ids, r: int) -> None:
    if rec[r, CHAIN] // 2 <= state[STEP]:
        state[STALE] -= 1
    _unlink(rec, chains, r)


@_inline
def _link_count(rec: Ids, val: Floats, chains: Ids, state: Ids, par: Floats, r: int) -> None:
    """Put a candidate's record, touched now, into its bucket."""
    key = _key(np.log(val[r, VALUE]), par[LN_COUNT_DECAY], rec[r, TOUCHED])
    # From the rounded key, so that counts that tie share a bucket; the half keeps counts that are
    # powers of the decay off the buckets' borders.
    bucket: Any = max(np.int64(np.floor(key * 1e-9 / par[LN_COUNT_DECAY] + 0.5)), 0)
    rec[r, KEY] = -key
    _link(rec, chains, bucket, r)
    state[HIGHEST] = max(state[HIGHEST], bucket)
    state[CANDIDATES] += 1


# --- one minibatch ----------------------------------------------------------------------------


@_jit
def fill(
    table: Ids, rec: Ids, val: Floats, scores: Ids, state: Ids, par: Floats, slot_rec: Ids,
    nodes: Ids, slots: Ids, linked: bool,
) -> bool:  # fmt: skip
    """Buffer ``nodes`` (ascending) at ``slots`` with the initial score.

    Returns:
        False if a node came twice (then the ledger is unusable).
    """
    for i in range(len(nodes)):
        if _find(table, rec, nodes[i]) >= 0:
            return False
        r = _new_record(table, rec, state, nodes[i])
        rec[r, SLOT] = slots[i]
        slot_rec[slots[i]] = r
        val[r, VALUE] = par[INITIAL]
        if linked:
            _link_score(rec, val, scores, state, par, r)
    state[OCCUPIED] += len(nodes)
    return True


@_jit
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


@_jit
def advance(
    table: Ids, rec: Ids, val: Floats, scores: Ids, counts: Ids, state: Ids, par: Floats,
    nodes: Ids, found: Ids, hit_at: Ids, hit_slots: Ids, miss_at: Ids,
) -> int:  # fmt: skip
    """One minibatch: hits and misses, scores and counts at its end. Returns the number of hits."""
    before = state[STEP]
    now = before + 1
    hits = 0
    misses = 0
    for start in range(0, len(nodes), BLOCK):
        stop = min(start + BLOCK, len(nodes))
        _find_some(table, rec, nodes, found, start, stop)
        for i in range(start, stop):
            _hint_neighbours(rec, found[:stop], i)
            r = found[i]
            if r >= 0 and rec[r, SLOT] >= 0:
                hit_at[hits] = i
                hit_slots[hits] = rec[r, SLOT]
                hits += 1
                _unlink_score(rec, scores, state, r)
                value = _decayed(val[r, VALUE], par[LN_DECAY], before - rec[r, TOUCHED])
                val[r, VALUE] = max(value * par[ON_ACCESS] + par[GAIN], TINY)
                rec[r, TOUCHED] = now
                _link_score(rec, val, scores, state, par, r)
            else:
                if r < 0:
                    r = _new_record(table, rec, state, nodes[i])
                elif rec[r, CHAIN] >= 0:
                    _unlink(rec, counts, r)
                    state[CANDIDATES] -= 1
                value = _decayed(val[r, VALUE], par[LN_COUNT_DECAY], before - rec[r, TOUCHED])
                val[r, VALUE] = value * par[COUNT_ON_MISS] + 1.0
                rec[r, TOUCHED] = now
                rec[r, SLOT] = -2 - misses
                _link_count(rec, val, counts, state, par, r)
                miss_at[misses] = i
                misses += 1
    state[STEP] = now
    state[STALE] += _size(scores, now)
    return hits


@_inline
def _less(keys: Ids, ids: Ids, a: int, b: int) -> Any:
    return keys[a] < keys[b] or (keys[a] == keys[b] and ids[a] < ids[b])


@_jit
def _select(rec: Ids, items: Ids, need: int) -> None:
    """Reorder ``items`` so that the ``need`` first by (key, id) stand in front (quickselect)."""
    keys = np.empty(len(items), np.int64)
    ids = np.empty(len(items), np.int64)
    for i in range(len(items)):
        _hint(rec, items[min(i + AHEAD, len(items) - 1)])
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


@_jit
def _sorted(rec: Ids, items: Ids) -> Ids:
    """``items`` in order of (key, id)."""
    ids = np.empty(len(items), np.int64)
    keys = np.empty(len(items), np.int64)
    for i in range(len(items)):
        _hint(rec, items[min(i + AHEAD, len(items) - 1)])
        ids[i] = rec[items[i], ID]
    items = items[np.argsort(ids, kind="mergesort")]
    for i in range(len(items)):
        keys[i] = rec[items[i], KEY]
    return items[np.argsort(keys, kind="mergesort")]


@_jit
def _gather(rec: Ids, chains: Ids, c: int, out: Ids, at: int) -> Any:
    """Write a chain's records to ``out`` from ``at`` on, in order; returns where they end.

    From both ends at once: each end waits for its own reads.
    """
    size = chains[c, COUNT]
    first, last = at, at + size - 1
    head, tail = chains[c, HEAD], chains[c, TAIL]
    while first < last:
        out[first] = head
        out[last] = tail
        head = rec[head, NEXT]
        tail = rec[tail, PREV]
        first += 1
        last -= 1
    if first == last:
        out[first] = head
    return at + size


@_jit
def _clear(chains: Ids, bucket: int) -> None:
    for c in (2 * bucket, 2 * bucket + 1):
        chains[c, COUNT] = 0
        chains[c, HEAD] = -1
        chains[c, TAIL] = -1


@_jit
def _take_part(rec: Ids, chains: Ids, bucket: int, need: int, budget: int, out: Ids) -> None:
    """Unlink the ``need`` first of a bucket that holds more than that."""
    c = 2 * bucket
    tidy = chains[c, COUNT]
    loose = chains[c + 1, COUNT]
    if loose == 0:
        for i in range(need):
            out[i] = chains[c, HEAD]
            _unlink(rec, chains, out[i])
        return
    if tidy + loose <= budget:
        items = np.empty(tidy + loose, np.int64)
        _gather(rec, chains, c + 1, items, _gather(rec, chains, c, items, 0))
        _select(rec, items, need)
        out[:need] = items[:need]
        if 2 * need > len(items):  # cheaper to link the others anew
            _clear(chains, bucket)
            for i in range(need, len(items)):
                _append(rec, chains, c + 1, items[i])
            return
        for i in range(need):
            _unlink(rec, chains, items[i])
        return
    # A bucket that is large against the work at hand is put in order once, not looked through
    # again at every replacement.
    items = np.empty(loose, np.int64)
    _gather(rec, chains, c + 1, items, 0)
    items = _sorted(rec, items)
    if 4 * loose > tidy:
        first = chains[c, HEAD] if tidy else -1
        _clear(chains, bucket)
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
            _unlink(rec, chains, out[i])
        return
    j = 0
    for i in range(need):
        head = chains[c, HEAD] if chains[c, COUNT] else -1
        if head < 0 or (j < loose and _before(rec, items[j], head)):
            head = items[j]
            j += 1
        out[i] = head
        _unlink(rec, chains, head)


@_jit
def _take(
    rec: Ids, chains: Ids, bucket: int, way: int, need: int, extra: int, out: Ids
) -> int:  # fmt: skip
    """Unlink the ``need`` first records, bucket by bucket in direction ``way``, into ``out``.

    Returns the bucket that was looked at last. There are enough records in that direction.
    """
    at = 0
    while at < need:
        size = _size(chains, bucket)
        if size == 0:
            bucket += way
        elif size <= need - at:
            for c in (2 * bucket, 2 * bucket + 1):
                at = _gather(rec, chains, c, out, at)
            _clear(chains, bucket)
            bucket += way
        else:
            _take_part(rec, chains, bucket, need - at, 4 * (need + extra) + 256, out[at:])
            at = need
    return bucket


@_jit
def replace(
    rec: Ids, val: Floats, scores: Ids, counts: Ids, state: Ids, par: Floats, slot_rec: Ids,
    rows: int, nodes: int, entrants: Ids, entrant_slots: Ids, entrant_miss: Ids,
) -> None:  # fmt: skip
    """Let ``rows`` candidates in: into free slots first, then into those of stale nodes.

    ``nodes``: remote nodes of the minibatch, the work that was done anyway.
    """
    now = state[STEP]
    free = min(len(slot_rec) - state[OCCUPIED], rows)
    victims = np.empty(rows - free, np.int64)
    chosen = np.empty(rows, np.int64)
    state[LOWEST] = _take(rec, scores, state[LOWEST], 1, rows - free, nodes, victims)
    state[HIGHEST] = max(_take(rec, counts, state[HIGHEST], -1, rows, nodes, chosen), 0)
    state[STALE] -= rows - free
    state[CANDIDATES] -= rows
    for i in range(rows):
        _hint(rec, chosen[min(i + AHEAD, rows - 1)])
        if free < rows:
            _hint(rec, victims[min(max(i + AHEAD - free, 0), rows - free - 1)])
        if i < free:
            slot = state[OCCUPIED]
            state[OCCUPIED] = slot + 1
        else:
            victim = victims[i - free]
            slot = rec[victim, SLOT]
            rec[victim, SLOT] = -1
            rec[victim, CHAIN] = -1
            score = _decayed(val[victim, VALUE], par[LN_DECAY], now - rec[victim, TOUCHED])
            rec[victim, TOUCHED] = now
            val[victim, VALUE] = 0.0
            if par[VICTIM_SCORE]:
                val[victim, VALUE] = max(score, TINY)
                _link_count(rec, val, counts, state, par, victim)
        r = chosen[i]
        entrants[i] = rec[r, ID]
        entrant_slots[i] = slot
        missed = rec[r, SLOT] <= -2 and rec[r, TOUCHED] == now
        entrant_miss[i] = -2 - rec[r, SLOT] if missed else -1
        count = _decayed(val[r, VALUE], par[LN_COUNT_DECAY], now - rec[r, TOUCHED])
        val[r, VALUE] = max(count, TINY) if par[ENTRANT_COUNT] else par[INITIAL]
        rec[r, TOUCHED] = now
        rec[r, SLOT] = slot
        slot_rec[slot] = r
        _link_score(rec, val, scores, state, par, r)


# --- admitting policies -------------------------------------------------------------------------
#
# Nothing but the rows of the current pull ever enters, so only buffered nodes are kept in order.
# A node that no announced minibatch needs lies in an *idle* chain: under RECENCY in the bucket of
# its last use, under COUNT in that of its count, under DECAYED in that of its key in units of one
# step of decay. A node that is needed lies in the chain of the minibatch that needs it next; column
# USES has one bit per announced minibatch, numbered modulo RING.

RECENCY, COUNTED, DECAYED = range(3)
"""Kinds of order."""
USES = TOUCHED
"""Column of a record under a policy with a window (which needs no TOUCHED): its pending uses."""
RING = 63
"""Bits of USES: minibatches that may be open at once."""
_RANK = 1 << 40
"""Unit of nearness in a worth; keys without nearness lie below it where there is a window."""


@_inline
def _idle_key(kind: int, ln_decay: float, value: float, now: int) -> Any:
    if kind == RECENCY:
        return np.int64(now)
    if kind == COUNTED:
        return np.int64(value)
    return _key(np.log(value), ln_decay, now)


@_inline
def _idle_bucket(kind: int, ln_decay: float, key: int) -> Any:
    if kind != DECAYED:
        return key
    return max(np.int64(np.floor(key * 1e-9 / ln_decay + 0.5)), 0)


@_inline
def _link_idle(rec: Ids, idle: Ids, state: Ids, kind: int, ln_decay: float, r: int) -> None:
    bucket: Any = _idle_bucket(kind, ln_decay, rec[r, KEY])
    _link(rec, idle, bucket, r)
    state[LOWEST] = min(state[LOWEST], bucket)


@_jit
def _distance(uses: int, now: int, window: int) -> Any:
    """Minibatches from ``now`` to the next use, 0 = none is announced."""
    if uses == 0:
        return 0
    for ahead in range(1, window + 1):
        if (uses >> ((now + ahead) % RING)) & 1:
            return ahead
    return 0


@_jit
def settle(
    table: Ids, rec: Ids, val: Floats, idle: Ids, state: Ids, slot_rec: Ids,
    kind: int, ln_decay: float, window: int,
    nodes: Ids, value: Floats, touched: Ids, slots: Ids,
) -> bool:  # fmt: skip
    """Give unknown ``nodes`` their records; those with a slot are buffered there, idle.

    Returns:
        False if a node came twice (then the ledger is unusable).
    """
    for i in range(len(nodes)):
        if _find(table, rec, nodes[i]) >= 0:
            return False
        r = _new_record(table, rec, state, nodes[i])
        val[r, VALUE] = value[i]
        rec[r, TOUCHED] = 0 if window else touched[i]
        rec[r, KEY] = _idle_key(kind, ln_decay, max(value[i], TINY), touched[i])
        if slots[i] >= 0:
            rec[r, SLOT] = slots[i]
            slot_rec[slots[i]] = r
            state[OCCUPIED] += 1
            _link_idle(rec, idle, state, kind, ln_decay, r)
    return True


@_jit
def _records_of(
    table: Ids, rec: Ids, state: Ids, nodes: Ids, found: Ids, start: int, stop: int
) -> None:  # fmt: skip
    """Records of some of the nodes into ``found``; unknown nodes get one."""
    _find_some(table, rec, nodes, found, start, stop)
    for i in range(start, stop):
        if found[i] < 0:
            found[i] = _new_record(table, rec, state, nodes[i])


@_jit
def announce(
    table: Ids, rec: Ids, idle: Ids, needed: Ids, state: Ids, step: int, nodes: Ids, found: Ids
) -> None:  # fmt: skip
    """Minibatch ``step`` will need ``nodes``; their records into ``found``."""
    lane = step % RING
    for start in range(0, len(nodes), BLOCK):
        stop = min(start + BLOCK, len(nodes))
        _records_of(table, rec, state, nodes, found, start, stop)
        for i in range(start, stop):
            _hint_neighbours(rec, found[:stop], i)
            r = found[i]
            if rec[r, USES] == 0 and rec[r, SLOT] >= 0:
                _unlink(rec, idle, r)
                _link(rec, needed, lane, r)
                state[NEEDED] += 1
            rec[r, USES] |= 1 << lane


@_jit
def withdraw(
    rec: Ids, idle: Ids, needed: Ids, state: Ids, kind: int, ln_decay: float, found: Ids
) -> None:  # fmt: skip
    """No announced minibatch will need the nodes of these records after all."""
    for i in range(len(found)):
        r = found[i]
        if rec[r, USES] != 0 and rec[r, SLOT] >= 0:
            _unlink(rec, needed, r)
            _link_idle(rec, idle, state, kind, ln_decay, r)
            state[NEEDED] -= 1
        rec[r, USES] = 0


@_jit
def _worst(rec: Ids, chains: Ids, bucket: int, count: int, extra: int, ties: bool) -> Ids:
    """Unlink the ``count`` worst of a bucket; in order unless all its keys are ``ties``."""
    out = np.empty(count, np.int64)
    if count == _size(chains, bucket):
        at = 0
        for c in (2 * bucket, 2 * bucket + 1):
            at = _gather(rec, chains, c, out, at)
        _clear(chains, bucket)
    else:
        _take_part(rec, chains, bucket, count, 4 * (count + extra) + 256, out)
    return out if ties else _sorted(rec, out)


@_jit
def _displace(
    rec: Ids, chains: Ids, bucket: int, rank: int, worth: Ids, order: Ids, placed: int,
    limit: int, extra: int, ties: bool, slots: Ids,
) -> Any:  # fmt: skip
    """Let missed nodes, best first, displace the worst of one bucket while they are worth more.

    At most ``limit`` of them. Returns how many are placed now.
    """
    victims = _worst(rec, chains, bucket, min(limit, _size(chains, bucket)), extra, ties)
    for j in range(len(victims)):
        v = victims[j]
        if worth[order[placed]] <= rank * _RANK + rec[v, KEY]:
            for i in range(j, len(victims)):
                _link(rec, chains, bucket, victims[i])
            break
        slots[placed] = rec[v, SLOT]
        rec[v, SLOT] = -1
        rec[v, CHAIN] = -1
        placed += 1
    return placed


@_jit
def admit(
    table: Ids, rec: Ids, val: Floats, idle: Ids, needed: Ids, state: Ids, slot_rec: Ids,
    kind: int, ln_decay: float, window: int,
    nodes: Ids, found: Ids, hit_at: Ids, hit_slots: Ids, miss_at: Ids,
    entrants: Ids, entrant_slots: Ids, entrant_miss: Ids,
) -> Any:  # fmt: skip
    """One minibatch: hits and misses, then who comes in.

    Without a window ``found`` is filled here, else it holds what :func:`announce` found.

    Returns:
        The number of hits, and of nodes that entered.
    """
    before = state[STEP]
    now = before + 1
    lane = now % RING
    state[STEP] = now
    hits = 0
    misses = 0
    stale = state[OCCUPIED] - state[NEEDED]
    if window:
        # The nodes needed next by this minibatch are just its hits: none is unlinked by itself.
        state[NEEDED] -= _size(needed, lane)
        _clear(needed, lane)
    worth = np.empty(len(found), np.int64)
    for start in range(0, len(found), BLOCK):
        stop = min(start + BLOCK, len(found))
        if not window:
            _records_of(table, rec, state, nodes, found, start, stop)
        for i in range(start, stop):
            if window:
                _hint(rec, found[min(i + AHEAD, stop - 1)])
            else:
                _hint_neighbours(rec, found[:stop], i)
            r = found[i]
            distance: Any = 0
            steps = 0
            if window:
                rec[r, USES] &= ~(1 << lane)
                distance = _distance(rec[r, USES], now, window)
            else:
                steps = now - rec[r, TOUCHED]
                rec[r, TOUCHED] = now
            if kind == DECAYED:
                val[r, VALUE] = _decayed(val[r, VALUE], ln_decay, steps) + 1.0
            else:
                val[r, VALUE] += 1.0
            key = _idle_key(kind, ln_decay, val[r, VALUE], now)
            if rec[r, SLOT] >= 0:
                hit_at[hits] = i
                hit_slots[hits] = rec[r, SLOT]
                hits += 1
                if not window:
                    _unlink(rec, idle, r)
                    stale -= 1
                rec[r, KEY] = key
                if distance:
                    _link(rec, needed, (now + distance) % RING, r)
                    state[NEEDED] += 1
                else:
                    _link_idle(rec, idle, state, kind, ln_decay, r)
            else:
                rec[r, KEY] = key
                worth[misses] = key + (_RANK * (RING - distance) if distance else 0)
                miss_at[misses] = i
                misses += 1
    state[STALE] = stale
    entered = _enter_missed(
        rec, idle, needed, state, slot_rec, kind, ln_decay, window, found, miss_at[:misses],
        worth[:misses], entrants, entrant_slots, entrant_miss,
    )  # fmt: skip
    return hits, entered


@_jit
def _enter_missed(
    rec: Ids, idle: Ids, needed: Ids, state: Ids, slot_rec: Ids,
    kind: int, ln_decay: float, window: int, found: Ids, miss_at: Ids, worth: Ids,
    entrants: Ids, entrant_slots: Ids, entrant_miss: Ids,
) -> int:  # fmt: skip
    """Missed nodes into free slots, then into those of buffered nodes that are worth less."""
    now = state[STEP]
    free = len(slot_rec) - state[OCCUPIED]
    left = state[OCCUPIED] - state[NEEDED]
    bucket: Any = state[LOWEST]
    while left and _size(idle, bucket) == 0:
        bucket += 1
    # Who cannot displace even the worst node need not be put in order.
    able = np.empty(len(miss_at), np.int64)
    n = 0
    for j in range(len(miss_at)):
        if (
            free
            or (window and worth[j] >= _RANK)
            or (left and _idle_bucket(kind, ln_decay, worth[j]) >= bucket)
        ):
            able[n] = j
            n += 1
    able = able[:n]
    keys = np.empty(n, np.int64)
    for j in range(n):
        keys[j] = -worth[able[j]]
    order = able[np.argsort(keys, kind="mergesort")]  # ties: the smaller id, misses ascend
    placed: Any = min(free, n)
    for j in range(placed):
        entrant_slots[j] = state[OCCUPIED] + j
    state[OCCUPIED] += placed
    going = True
    while going and placed < n and left:
        if _size(idle, bucket) == 0:
            bucket += 1
            continue
        size = _size(idle, bucket)
        # How many are above this bucket (or, where keys differ within one, in it)?
        able_now = 0
        while able_now < min(n - placed, size):
            value = worth[order[placed + able_now]]
            if value < _RANK or not window:
                its = _idle_bucket(kind, ln_decay, value)
                if its < bucket or (its == bucket and kind != DECAYED):
                    break
            able_now += 1
        first = placed
        if able_now:
            placed = _displace(
                rec, idle, bucket, 0, worth, order, placed, able_now, len(found),
                kind != DECAYED, entrant_slots,
            )  # fmt: skip
        left -= placed - first
        going = placed - first == size
    state[LOWEST] = bucket
    for distance in range(window, 0, -1):
        if not going or placed == n:
            break
        rank = RING - distance
        chain = (now + distance) % RING
        size = _size(needed, chain)
        able_now = 0
        while able_now < min(n - placed, size):
            if worth[order[placed + able_now]] < _RANK * rank:
                break
            able_now += 1
        first = placed
        if able_now:
            placed = _displace(
                rec, needed, chain, rank, worth, order, placed, able_now, len(found), False,
                entrant_slots,
            )  # fmt: skip
        state[NEEDED] -= placed - first
        going = placed - first == size
    for j in range(placed):
        miss = order[j]
        r = found[miss_at[miss]]
        entrants[j] = rec[r, ID]
        entrant_miss[j] = miss
        rec[r, SLOT] = entrant_slots[j]
        slot_rec[entrant_slots[j]] = r
        if window and worth[miss] >= _RANK:
            _link(rec, needed, (now + RING - worth[miss] // _RANK) % RING, r)
            state[NEEDED] += 1
        else:
            _link_idle(rec, idle, state, kind, ln_decay, r)
    return int(placed)


# --- inspection, checkpoints --------------------------------------------------------------------


@_jit
def values(
    table: Ids, rec: Ids, val: Floats, state: Ids, par: Floats, nodes: Ids,
    scores: Floats, counts: Floats,
) -> None:  # fmt: skip
    """Scores (NaN = not buffered) and counts (0 = no candidate) now."""
    for i in range(len(nodes)):
        scores[i] = np.nan
        counts[i] = 0.0
        r = _find(table, rec, nodes[i])
        if r >= 0:
            steps = state[STEP] - rec[r, TOUCHED]
            if rec[r, SLOT] >= 0:
                scores[i] = _decayed(val[r, VALUE], par[LN_DECAY], steps)
            else:
                counts[i] = _decayed(val[r, VALUE], par[LN_COUNT_DECAY], steps)


@_jit
def restore(
    table: Ids, rec: Ids, val: Floats, scores: Ids, counts: Ids, state: Ids, par: Floats,
    slot_rec: Ids, nodes: Ids, value: Floats, touched: Ids, slots: Ids, linked: bool,
) -> None:  # fmt: skip
    """Rebuild an empty ledger, whose step is set, from one row per record."""
    for i in range(len(nodes)):
        r = _new_record(table, rec, state, nodes[i])
        val[r, VALUE] = value[i]
        rec[r, TOUCHED] = touched[i]
        if slots[i] >= 0:
            rec[r, SLOT] = slots[i]
            slot_rec[slots[i]] = r
            state[OCCUPIED] += 1
            if linked:
                _link_score(rec, val, scores, state, par, r)
        elif value[i] > 0:
            _link_count(rec, val, counts, state, par, r)


# --- rows ---------------------------------------------------------------------------------------


@_jit
def copy_rows(source: Any, source_at: Ids, target: Any, target_at: Ids) -> None:
    """``target[target_at[i]] = source[source_at[i]]`` for rows seen as bytes or as words of 8."""
    width = source.shape[1]
    for i in range(len(source_at)):
        s = source[source_at[i]]
        t = target[target_at[i]]
        for j in range(width):
            t[j] = s[j]
