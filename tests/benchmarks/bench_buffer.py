"""What a minibatch costs in the persistent buffer, against the usual way, side by side.

    python -I tests/benchmarks/bench_buffer.py [--size small --size medium --size large] [--json]

The usual way keeps the buffer's ids sorted, finds a minibatch's by ``searchsorted``, decays every
score and every count and counts the stale ones at each minibatch, and sorts anew after a
replacement: numpy, in place where that is possible. It looks ids up as a sampler hands them out, in
no order; ``sorted`` is the same with care: it sorts the minibatch's ids first, as Rudder has to,
so that ``searchsorted`` runs through memory once. All sides get the same accesses (Zipf-like over
the halo), write the same rows to the same places, and take turns within one run, so that noise of
the machine meets all. Replaced rows are a share of the slots that all replace alike.

``copy`` is the least that a plain minibatch can cost anybody: its rows, copied from random slots.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rudder.buffer import PersistentBuffer, warm
from rudder.decision import Decision
from rudder.registries import POLICIES

SIZES = {
    "small": (10_000, 40_000, 12_000),
    "medium": (100_000, 400_000, 100_000),
    "large": (1_000_000, 4_000_000, 100_000),
}
"""Slots, halo nodes, remote nodes of a minibatch."""
DECAY = 0.95
STALE = DECAY * (1 - 1e-9)


def in_order(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in ascending order and where each stood, by torch as in the loader."""
    found = torch.from_numpy(nodes).sort()
    return found.values.numpy(), found.indices.numpy()


class UsualWay:
    """The paper's score policy over sorted arrays of all slots and all halo nodes."""

    def __init__(
        self, capacity: int, halo: np.ndarray, width: int, sorts_minibatch: bool = False
    ) -> None:
        self.halo = halo
        self.sorts_minibatch = sorts_minibatch
        self.stale = 0
        self.counts = np.zeros(len(halo))
        self.scores = np.ones(capacity)
        self.ids = np.empty(capacity, np.int64)
        self.rows = np.empty((capacity, width), np.float32)

    def fill(self, ids: np.ndarray, rows: np.ndarray) -> None:
        order = np.argsort(ids)
        self.ids, self.rows = ids[order], rows[order]

    def plan(self, nodes: np.ndarray, share: float | None) -> np.ndarray:
        self.order = None
        if self.sorts_minibatch:
            nodes, self.order = in_order(nodes)
        where = np.searchsorted(self.ids, nodes)
        where[where == len(self.ids)] = 0
        hit = self.ids[where] == nodes
        self.hit, self.where = hit, where[hit]
        misses = nodes[~hit]
        kept = self.scores[self.where]
        self.scores *= DECAY
        self.scores[self.where] = kept + 1
        self.counts *= DECAY
        at = np.searchsorted(self.halo, misses)
        self.counts[at] += 1
        is_stale = self.scores < STALE
        self.stale = int(np.count_nonzero(is_stale))
        self.swap = None
        pull = misses
        if share is not None:
            stale = np.flatnonzero(is_stale)
            candidates = np.flatnonzero(self.counts)
            k = min(math.ceil(share * len(stale)), len(candidates))
            if k:
                victims = stale[np.argsort(self.scores[stale], kind="stable")[:k]]
                entrants = candidates[np.argsort(-self.counts[candidates], kind="stable")[:k]]
                new = self.halo[entrants]
                by_id = np.argsort(misses)
                at = np.searchsorted(misses, new, sorter=by_id)
                slot = by_id[np.minimum(at, len(misses) - 1)]
                late = misses[slot] != new
                slot[late] = len(misses) + np.arange(late.sum())
                pull = np.concatenate([misses, new[late]])
                self.swap = (victims, entrants, new, slot)
        return pull

    def commit(self, pulled: np.ndarray, out: np.ndarray) -> None:
        hit, missed = np.flatnonzero(self.hit), np.flatnonzero(~self.hit)
        if self.order is not None:
            hit, missed = self.order[hit], self.order[missed]
        out[hit] = self.rows[self.where]
        out[missed] = pulled[: len(missed)]
        if self.swap is None:
            return
        victims, entrants, new, slot = self.swap
        self.ids[victims] = new
        self.rows[victims] = pulled[slot]
        self.scores[victims] = self.counts[entrants]
        self.counts[entrants] = 0
        order = np.argsort(self.ids)
        self.ids, self.scores, self.rows = self.ids[order], self.scores[order], self.rows[order]


def accesses(halo: np.ndarray, count: int, minibatches: int, seed: int) -> list[np.ndarray]:
    """Distinct ids in no order, drawn with weight 1 / rank**0.75 from half of the halo.

    Ranks are shuffled over the ids. The half moves on by a fiftieth of the halo per minibatch, so
    that there is always something stale to replace.
    """
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(np.arange(1, len(halo) // 2 + 1) ** -0.75)
    shuffled = rng.permutation(halo)
    found = []
    for step in range(minibatches):
        drifted = np.roll(shuffled, -step * len(halo) // 50)
        chosen: np.ndarray = np.empty(0, np.int64)
        while len(chosen) < count:
            draw = np.searchsorted(cumulative, rng.random(count) * cumulative[-1])
            chosen = np.unique(np.concatenate([chosen, draw]))
        found.append(drifted[rng.choice(chosen, count, replace=False)])
    return found


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """CPU seconds of this thread: waiting for a core that others use is no cost of the buffer."""
    start = time.thread_time()
    result = work()
    return result, time.thread_time() - start


class Ours:
    """Rudder's buffer, given a minibatch as its loader gives it."""

    def __init__(self, capacity: int, width: int) -> None:
        self.buffer = PersistentBuffer(capacity, width, POLICIES.build("score"))

    def fill(self, ids: np.ndarray, rows: np.ndarray) -> None:
        self.buffer.fill(ids, rows)

    def plan(self, nodes: np.ndarray, share: float | None) -> np.ndarray:
        nodes, self.order = in_order(nodes)
        decision = None if share is None else Decision(replace=True, share=share)
        self.planned = self.buffer.plan(nodes, decision)
        self.stale = self.planned.stale
        return self.planned.pull

    def commit(self, pulled: np.ndarray, out: np.ndarray) -> None:
        self.buffer.commit(self.planned, pulled, out, self.order)


def measure(size: str, width: int, minibatches: int, interval: int, seed: int) -> dict[str, Any]:
    """Milliseconds of plan + commit, plain and with replacement, of all sides."""
    capacity, halo_nodes, count = SIZES[size]
    rng = np.random.default_rng(seed)
    halo = np.arange(halo_nodes, dtype=np.int64) * 3 + 2**31
    features = rng.random((4 * count, width), np.float32)
    rows = rng.random((capacity, width), np.float32)
    first = rng.permutation(halo)[:capacity]
    sides: dict[str, Ours | UsualWay] = {
        "ours": Ours(capacity, width),
        "usual": UsualWay(capacity, halo, width),
        "sorted": UsualWay(capacity, halo, width, sorts_minibatch=True),
    }
    for side in sides.values():
        side.fill(first, rows)
    out = np.empty((count, width), np.float32)
    share = min(1.0, count / capacity)
    times: dict[str, list[float]] = {f"{w}_{k}": [] for w in sides for k in ("plain", "replace")}
    copies, swaps, replaced = [], [], []
    for step, nodes in enumerate(accesses(halo, count, minibatches, seed)):
        kind = "replace" if step % interval == interval - 1 else "plain"
        told = []
        for who, side in sides.items():
            pull, planned = timed(lambda: side.plan(nodes, share if kind == "replace" else None))  # noqa: B023 - called at once
            pulled = np.resize(features, (len(pull), width))
            _, committed = timed(lambda: side.commit(pulled, out))  # noqa: B023
            told.append((sorted(pull.tolist()), side.stale))
            if step >= interval:
                times[f"{who}_{kind}"].append(1e3 * (planned + committed))
        if told[1:] != told[:-1]:
            raise SystemExit(f"{size}: the sides disagree at minibatch {step}")
        slots = rng.integers(0, capacity, count)
        copies.append(timed(lambda: np.take(rows, slots, axis=0, out=out, mode="clip"))[1])  # noqa: B023
        if kind == "replace":
            entrants = sides["ours"].planned.replaced
            some = features[:entrants]
            swaps.append(timed(lambda: rows.__setitem__(slots[:entrants], some))[1])  # noqa: B023
            replaced.append(entrants)
    summary: dict[str, Any] = {
        "name": size,
        "slots": capacity,
        "halo": halo_nodes,
        "ids": count,
        "features": width,
        "replaced_rows": statistics.median(replaced),
        "copy_ms": 1e3 * statistics.median(copies),
        "swap_ms": 1e3 * statistics.median(swaps),
    }
    for name, values in times.items():
        summary[f"{name}_ms"] = statistics.median(values)
        who, _, kind = name.partition("_")
        if who != "ours":
            ratios = [b / a for a, b in zip(times[f"ours_{kind}"], values, strict=True)]
            summary[f"{who}_over_ours_{kind}"] = statistics.median(ratios)
            summary[f"{who}_over_ours_{kind}_spread"] = [min(ratios), max(ratios)]
    plain = summary["ours_plain_ms"]
    summary["replace_over_plain"] = (summary["ours_replace_ms"] - summary["swap_ms"]) / plain
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", action="append", choices=list(SIZES), help="default: all")
    parser.add_argument("--width", type=int, default=100, help="float32 features per row")
    parser.add_argument("--minibatches", type=int, default=24)
    parser.add_argument("--interval", type=int, default=4, help="replace at every n-th minibatch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    _, warm_s = timed(warm)
    found = [
        measure(size, args.width, args.minibatches, args.interval, args.seed)
        for size in args.size or SIZES
    ]
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{platform.processor() or platform.machine()}, kernels ready in {warm_s:.1f} s")
    print("medians in ms (CPU) of plan + commit; in brackets: times Rudder's [lowest, highest]")
    for row in found:
        print(f"{row['name']}: {row['slots']:,} slots, {row['halo']:,} halo, {row['ids']:,} ids")
        for kind in ("plain", "replace"):
            told = [f"  {kind:8} Rudder {row[f'ours_{kind}_ms']:8.2f}"]
            for who in ("usual", "sorted"):
                low, high = row[f"{who}_over_ours_{kind}_spread"]
                told.append(
                    f"{who} {row[f'{who}_{kind}_ms']:8.2f} "
                    f"({row[f'{who}_over_ours_{kind}']:.1f} [{low:.1f}, {high:.1f}])"
                )
            print("  ".join(told))
        print(f"  copy     {row['copy_ms']:.2f}: the rows alone, from random slots")
        print(
            f"  a replacement of {row['replaced_rows']:,.0f} rows, without copying them "
            f"({row['swap_ms']:.2f} ms), costs {row['replace_over_plain']:.2f} plain minibatches"
        )


if __name__ == "__main__":
    main()
