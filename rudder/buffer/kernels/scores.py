"""The decayed-score family: scores of buffered nodes, counts of candidates, and their order.

A record's ``VALUE`` is the node's score if it is buffered, else its candidate count, as of step
``TOUCHED``; decay is applied when the record is read.

``ln(value) - step * ln(decay)`` does not change while a node is idle. Rounded (see
``rudder.policies.base.TIE_DIGITS``) it is the record's ``KEY``, and records lie in buckets by it:

- buffered nodes by the step at which they become stale, if they stay idle: the stale nodes are
  those of the buckets up to now, so counting them costs one addition per minibatch;
- candidates by their key in units of one step of decay (with the sign turned, so that a smaller
  ``KEY`` is taken first in both).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rudder.buffer.kernels.chains import hint_neighbours, link, size_of, take, unlink
from rudder.buffer.kernels.memory import AHEAD, BLOCK, Floats, Ids, hint, inline
from rudder.buffer.kernels.records import (
    CANDIDATES,
    CHAIN,
    HIGHEST,
    ID,
    KEY,
    LOWEST,
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
from rudder.jit import jit

(
    LN_DECAY, LN_THRESHOLD, ON_ACCESS, GAIN, INITIAL,
    LN_COUNT_DECAY, COUNT_ON_MISS, ENTRANT_COUNT, VICTIM_SCORE, PARAMETERS,
) = range(10)  # fmt: skip
"""Entries of the parameters. LN_DECAY and LN_COUNT_DECAY are -ln(decay), above 0."""
TINY = 1e-300
"""Values are held at this from below, so that their logarithm exists."""


@inline
def decayed(value: float, ln_decay: float, steps: int) -> Any:
    if steps == 0:
        return value
    return value * np.exp(-ln_decay * steps)


@inline
def order_key(ln_value: float, ln_decay: float, step: int) -> Any:
    return np.int64(np.floor((ln_value + ln_decay * step) * 1e9 + 0.5))


@inline
def _link_score(rec: Ids, val: Floats, chains: Ids, state: Ids, par: Floats, r: int) -> None:
    """Put a buffered record, touched now, into the bucket of the step that finds it stale."""
    now = rec[r, TOUCHED]
    ln_value = np.log(val[r, VALUE])
    ahead = np.int64(np.floor((ln_value - par[LN_THRESHOLD]) / par[LN_DECAY])) + 1
    bucket: Any = max(now + ahead, 0)
    rec[r, KEY] = order_key(ln_value, par[LN_DECAY], now)
    link(rec, chains, bucket, r)
    state[LOWEST] = min(state[LOWEST], bucket)
    if bucket <= state[STEP]:
        state[STALE] += 1


@inline
def _unlink_score(rec: Ids, chains: Ids, state: Ids, r: int) -> None:
    if rec[r, CHAIN] // 2 <= state[STEP]:
        state[STALE] -= 1
    unlink(rec, chains, r)


@inline
def _link_count(rec: Ids, val: Floats, chains: Ids, state: Ids, par: Floats, r: int) -> None:
    """Put a candidate's record, touched now, into its bucket."""
    key = order_key(np.log(val[r, VALUE]), par[LN_COUNT_DECAY], rec[r, TOUCHED])
    # From the rounded key, so that counts that tie share a bucket; the half keeps counts that are
    # powers of the decay off the buckets' borders.
    bucket: Any = max(np.int64(np.floor(key * 1e-9 / par[LN_COUNT_DECAY] + 0.5)), 0)
    rec[r, KEY] = -key
    link(rec, chains, bucket, r)
    state[HIGHEST] = max(state[HIGHEST], bucket)
    state[CANDIDATES] += 1


@jit
def fill(
    table: Ids, rec: Ids, val: Floats, scores: Ids, state: Ids, par: Floats, slot_rec: Ids,
    nodes: Ids, slots: Ids, linked: bool,
) -> bool:  # fmt: skip
    """Buffer ``nodes`` (ascending) at ``slots`` with the initial score.

    Returns:
        False if a node came twice (then the ledger is unusable).
    """
    for i in range(len(nodes)):
        if find(table, rec, nodes[i]) >= 0:
            return False
        r = new_record(table, rec, state, nodes[i])
        rec[r, SLOT] = slots[i]
        slot_rec[slots[i]] = r
        val[r, VALUE] = par[INITIAL]
        if linked:
            _link_score(rec, val, scores, state, par, r)
    state[OCCUPIED] += len(nodes)
    return True


@jit
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
        find_some(table, rec, nodes, found, start, stop)
        for i in range(start, stop):
            hint_neighbours(rec, found[:stop], i)
            r = found[i]
            if r >= 0 and rec[r, SLOT] >= 0:
                hit_at[hits] = i
                hit_slots[hits] = rec[r, SLOT]
                hits += 1
                _unlink_score(rec, scores, state, r)
                value = decayed(val[r, VALUE], par[LN_DECAY], before - rec[r, TOUCHED])
                val[r, VALUE] = max(value * par[ON_ACCESS] + par[GAIN], TINY)
                rec[r, TOUCHED] = now
                _link_score(rec, val, scores, state, par, r)
            else:
                if r < 0:
                    r = new_record(table, rec, state, nodes[i])
                elif rec[r, CHAIN] >= 0:
                    unlink(rec, counts, r)
                    state[CANDIDATES] -= 1
                value = decayed(val[r, VALUE], par[LN_COUNT_DECAY], before - rec[r, TOUCHED])
                val[r, VALUE] = value * par[COUNT_ON_MISS] + 1.0
                rec[r, TOUCHED] = now
                rec[r, SLOT] = -2 - misses
                _link_count(rec, val, counts, state, par, r)
                miss_at[misses] = i
                misses += 1
    state[STEP] = now
    state[STALE] += size_of(scores, now)
    return hits


@jit
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
    state[LOWEST] = take(rec, scores, state[LOWEST], 1, rows - free, nodes, victims)
    state[HIGHEST] = max(take(rec, counts, state[HIGHEST], -1, rows, nodes, chosen), 0)
    state[STALE] -= rows - free
    state[CANDIDATES] -= rows
    for i in range(rows):
        hint(rec, chosen[min(i + AHEAD, rows - 1)])
        if free < rows:
            hint(rec, victims[min(max(i + AHEAD - free, 0), rows - free - 1)])
        if i < free:
            slot = state[OCCUPIED]
            state[OCCUPIED] = slot + 1
        else:
            victim = victims[i - free]
            slot = rec[victim, SLOT]
            rec[victim, SLOT] = -1
            rec[victim, CHAIN] = -1
            idle = now - rec[victim, TOUCHED]
            rec[victim, TOUCHED] = now
            if par[VICTIM_SCORE]:
                score = decayed(val[victim, VALUE], par[LN_DECAY], idle)
                val[victim, VALUE] = max(score, TINY)
                _link_count(rec, val, counts, state, par, victim)
            else:
                val[victim, VALUE] = 0.0
        r = chosen[i]
        entrants[i] = rec[r, ID]
        entrant_slots[i] = slot
        missed = rec[r, SLOT] <= -2 and rec[r, TOUCHED] == now
        entrant_miss[i] = -2 - rec[r, SLOT] if missed else -1
        count = decayed(val[r, VALUE], par[LN_COUNT_DECAY], now - rec[r, TOUCHED])
        val[r, VALUE] = max(count, TINY) if par[ENTRANT_COUNT] else par[INITIAL]
        rec[r, TOUCHED] = now
        rec[r, SLOT] = slot
        slot_rec[slot] = r
        _link_score(rec, val, scores, state, par, r)


@jit
def values(
    table: Ids, rec: Ids, val: Floats, state: Ids, par: Floats, nodes: Ids,
    scores: Floats, counts: Floats,
) -> None:  # fmt: skip
    """Scores (NaN = not buffered) and counts (0 = no candidate) now."""
    for i in range(len(nodes)):
        scores[i] = np.nan
        counts[i] = 0.0
        r = find(table, rec, nodes[i])
        if r >= 0:
            steps = state[STEP] - rec[r, TOUCHED]
            if rec[r, SLOT] >= 0:
                scores[i] = decayed(val[r, VALUE], par[LN_DECAY], steps)
            else:
                counts[i] = decayed(val[r, VALUE], par[LN_COUNT_DECAY], steps)


@jit
def restore(
    table: Ids, rec: Ids, val: Floats, scores: Ids, counts: Ids, state: Ids, par: Floats,
    slot_rec: Ids, nodes: Ids, value: Floats, touched: Ids, slots: Ids, linked: bool,
) -> None:  # fmt: skip
    """Rebuild an empty ledger, whose step is set, from one row per record."""
    for i in range(len(nodes)):
        r = new_record(table, rec, state, nodes[i])
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
