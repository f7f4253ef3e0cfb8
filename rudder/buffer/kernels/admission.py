"""The admitting policies: what nodes are worth, and who comes in.

Nothing but the rows of the current pull ever enters, so only buffered nodes are kept in order. A
node that no announced minibatch needs lies in an *idle* chain: under RECENCY in the bucket of its
last use, under COUNTED in that of its count, under DECAYED in that of its key in units of one step
of decay. A node that is needed lies in the chain of the minibatch that needs it next; column USES
has one bit per announced minibatch, numbered modulo RING. ``VALUE`` is the count as of ``TOUCHED``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rudder.buffer.kernels.chains import (
    clear,
    gather,
    hint_neighbours,
    in_order,
    link,
    size_of,
    take_part,
    unlink,
)  # fmt: skip
from rudder.buffer.kernels.memory import AHEAD, BLOCK, Floats, Ids, hint, inline
from rudder.buffer.kernels.records import (
    CHAIN,
    ID,
    KEY,
    LOWEST,
    NEEDED,
    OCCUPIED,
    SLOT,
    STALE,
    STEP,
    TOUCHED,
    VALUE,
    find,
    find_some,
    new_record,
)  # fmt: skip
from rudder.buffer.kernels.scores import TINY, decayed, order_key
from rudder.jit import jit

RECENCY, COUNTED, DECAYED = range(3)
"""Kinds of order."""
USES = TOUCHED
"""Column of a record under a policy with a window (which needs no TOUCHED): its pending uses."""
RING = 63
"""Bits of USES: minibatches that may be open at once."""
_RANK = 1 << 40
"""Unit of nearness in a worth; keys without nearness lie below it where there is a window."""


@inline
def _idle_key(kind: int, ln_decay: float, value: float, now: int) -> Any:
    if kind == RECENCY:
        return np.int64(now)
    if kind == COUNTED:
        return np.int64(value)
    return order_key(np.log(value), ln_decay, now)


@inline
def _idle_bucket(kind: int, ln_decay: float, key: int) -> Any:
    if kind != DECAYED:
        return key
    return max(np.int64(np.floor(key * 1e-9 / ln_decay + 0.5)), 0)


@inline
def _link_idle(rec: Ids, idle: Ids, state: Ids, kind: int, ln_decay: float, r: int) -> None:
    bucket: Any = _idle_bucket(kind, ln_decay, rec[r, KEY])
    link(rec, idle, bucket, r)
    state[LOWEST] = min(state[LOWEST], bucket)


@jit
def _distance(uses: int, now: int, window: int) -> Any:
    """Minibatches from ``now`` to the next use, 0 = none is announced."""
    if uses == 0:
        return 0
    for ahead in range(1, window + 1):
        if (uses >> ((now + ahead) % RING)) & 1:
            return ahead
    return 0


@jit
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
        if find(table, rec, nodes[i]) >= 0:
            return False
        r = new_record(table, rec, state, nodes[i])
        val[r, VALUE] = value[i]
        rec[r, TOUCHED] = 0 if window else touched[i]
        rec[r, KEY] = _idle_key(kind, ln_decay, max(value[i], TINY), touched[i])
        if slots[i] >= 0:
            rec[r, SLOT] = slots[i]
            slot_rec[slots[i]] = r
            state[OCCUPIED] += 1
            _link_idle(rec, idle, state, kind, ln_decay, r)
    return True


@jit
def _records_of(
    table: Ids, rec: Ids, state: Ids, nodes: Ids, found: Ids, start: int, stop: int
) -> None:  # fmt: skip
    """Records of some of the nodes into ``found``; unknown nodes get one."""
    find_some(table, rec, nodes, found, start, stop)
    for i in range(start, stop):
        if found[i] < 0:
            found[i] = new_record(table, rec, state, nodes[i])


@jit
def announce(
    table: Ids, rec: Ids, idle: Ids, needed: Ids, state: Ids, step: int, nodes: Ids, found: Ids
) -> None:  # fmt: skip
    """Minibatch ``step`` will need ``nodes``; their records into ``found``."""
    lane = step % RING
    for start in range(0, len(nodes), BLOCK):
        stop = min(start + BLOCK, len(nodes))
        _records_of(table, rec, state, nodes, found, start, stop)
        for i in range(start, stop):
            hint_neighbours(rec, found[:stop], i)
            r = found[i]
            if rec[r, USES] == 0 and rec[r, SLOT] >= 0:
                unlink(rec, idle, r)
                link(rec, needed, lane, r)
                state[NEEDED] += 1
            rec[r, USES] |= 1 << lane


@jit
def withdraw(
    rec: Ids, idle: Ids, needed: Ids, state: Ids, kind: int, ln_decay: float, found: Ids
) -> None:  # fmt: skip
    """No announced minibatch will need the nodes of these records after all."""
    for i in range(len(found)):
        r = found[i]
        if rec[r, USES] != 0 and rec[r, SLOT] >= 0:
            unlink(rec, needed, r)
            _link_idle(rec, idle, state, kind, ln_decay, r)
            state[NEEDED] -= 1
        rec[r, USES] = 0


@jit
def _worst(rec: Ids, chains: Ids, bucket: int, count: int, extra: int, ties: bool) -> Ids:
    """Unlink the ``count`` worst of a bucket; in order unless all its keys are ``ties``."""
    out = np.empty(count, np.int64)
    if count == size_of(chains, bucket):
        gather(rec, chains, np.arange(2 * bucket, 2 * bucket + 2), out)
        clear(chains, bucket)
    else:
        take_part(rec, chains, bucket, count, 4 * (count + extra) + 256, out)
    return out if ties else in_order(rec, out)


@jit
def _displace(
    rec: Ids, chains: Ids, bucket: int, rank: int, worth: Ids, order: Ids, placed: int,
    limit: int, extra: int, ties: bool, slots: Ids,
) -> Any:  # fmt: skip
    """Let missed nodes, best first, displace the worst of one bucket while they are worth more.

    At most ``limit`` of them. Returns how many are placed now.
    """
    victims = _worst(rec, chains, bucket, min(limit, size_of(chains, bucket)), extra, ties)
    for j in range(len(victims)):
        v = victims[j]
        if worth[order[placed]] <= rank * _RANK + rec[v, KEY]:
            for i in range(j, len(victims)):
                link(rec, chains, bucket, victims[i])
            break
        slots[placed] = rec[v, SLOT]
        rec[v, SLOT] = -1
        rec[v, CHAIN] = -1
        placed += 1
    return placed


@jit
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
        state[NEEDED] -= size_of(needed, lane)
        clear(needed, lane)
    worth = np.empty(len(found), np.int64)
    for start in range(0, len(found), BLOCK):
        stop = min(start + BLOCK, len(found))
        if not window:
            _records_of(table, rec, state, nodes, found, start, stop)
        for i in range(start, stop):
            if window:
                hint(rec, found[min(i + AHEAD, stop - 1)])
            else:
                hint_neighbours(rec, found[:stop], i)
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
                val[r, VALUE] = decayed(val[r, VALUE], ln_decay, steps) + 1.0
            else:
                val[r, VALUE] += 1.0
            key = _idle_key(kind, ln_decay, val[r, VALUE], now)
            if rec[r, SLOT] >= 0:
                hit_at[hits] = i
                hit_slots[hits] = rec[r, SLOT]
                hits += 1
                if not window:
                    unlink(rec, idle, r)
                    stale -= 1
                rec[r, KEY] = key
                if distance:
                    link(rec, needed, (now + distance) % RING, r)
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


@jit
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
    while left and size_of(idle, bucket) == 0:
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
        if size_of(idle, bucket) == 0:
            bucket += 1
            continue
        size = size_of(idle, bucket)
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
        size = size_of(needed, chain)
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
            link(rec, needed, (now + RING - worth[miss] // _RANK) % RING, r)
            state[NEEDED] += 1
        else:
            _link_idle(rec, idle, state, kind, ln_decay, r)
    return int(placed)
