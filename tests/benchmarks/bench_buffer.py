"""What a minibatch costs in the persistent buffer, against the usual way, side by side.

    python -I tests/benchmarks/bench_buffer.py [--size small --size medium --size large] [--json]

The usual way keeps the ids sorted, finds a minibatch by ``searchsorted``, decays every score and
every count at each minibatch, and sorts anew after a replacement: numpy, written with care, not a
straw man. Both sides get the same accesses (Zipf-like over the halo), copy the same rows, and take
turns within one run, so that noise of the machine meets both. Replaced rows are a share of the
slots that both replace alike.
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


class UsualWay:
    """The paper's score policy over sorted arrays of all slots and all halo nodes."""

    def __init__(self, capacity: int, halo: np.ndarray, width: int) -> None:
        self.halo = halo
        self.counts = np.zeros(len(halo))
        self.scores = np.ones(capacity)
        self.ids = np.empty(capacity, np.int64)
        self.rows = np.empty((capacity, width), np.float32)

    def fill(self, ids: np.ndarray, rows: np.ndarray) -> None:
        order = np.argsort(ids)
        self.ids, self.rows = ids[order], rows[order]

    def plan(self, nodes: np.ndarray, share: float | None) -> np.ndarray:
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
        self.swap = None
        pull = misses
        if share is not None:
            stale = np.flatnonzero(self.scores < STALE)
            candidates = np.flatnonzero(self.counts)
            k = min(math.ceil(share * len(stale)), len(candidates))
            if k:
                victims = stale[np.argsort(self.scores[stale], kind="stable")[:k]]
                entrants = candidates[np.argsort(-self.counts[candidates], kind="stable")[:k]]
                new = self.halo[entrants]
                slot = np.searchsorted(misses, new)
                slot[slot == len(misses)] = 0
                late = misses[slot] != new
                slot[late] = len(misses) + np.arange(late.sum())
                pull = np.concatenate([misses, new[late]])
                self.swap = (victims, entrants, new, slot)
        return pull

    def commit(self, pulled: np.ndarray, out: np.ndarray) -> None:
        out[self.hit] = self.rows[self.where]
        out[~self.hit] = pulled[: len(out) - len(self.where)]
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
    """Distinct ascending ids, drawn with weight 1 / rank**0.75 from half of the halo.

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
        found.append(np.sort(drifted[rng.choice(chosen, count, replace=False)]))
    return found


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def measure(size: str, width: int, minibatches: int, interval: int, seed: int) -> dict[str, Any]:
    """Milliseconds of plan + commit, plain and with replacement, of both sides."""
    capacity, halo_nodes, count = SIZES[size]
    rng = np.random.default_rng(seed)
    halo = np.arange(halo_nodes, dtype=np.int64) * 3 + 2**31
    trace = accesses(halo, count, minibatches, seed)
    first = rng.permutation(halo)[:capacity]
    rows = rng.random((capacity, width), np.float32)
    features = rng.random((4 * count, width), np.float32)
    ours = PersistentBuffer(capacity, width, POLICIES.build("score"))
    ours.fill(first, rows)
    usual = UsualWay(capacity, halo, width)
    usual.fill(first, rows)
    outs = np.empty((count, width), np.float32), np.empty((count, width), np.float32)
    at = np.arange(count)
    share = min(1.0, count / capacity)
    times: dict[str, list[float]] = {
        f"{who}_{kind}": [] for who in ("ours", "usual") for kind in ("plain", "replace")
    }
    copies: list[float] = []
    replaced = []
    for step, nodes in enumerate(trace):
        replace = step % interval == interval - 1
        kind = "replace" if replace else "plain"
        decision = Decision(replace=True, share=share) if replace else None

        plan, planned = timed(lambda: ours.plan(nodes, decision))  # noqa: B023 - called at once
        pulled = np.resize(features, (plan.fetched, width))
        _, committed = timed(lambda: ours.commit(plan, pulled, outs[0], at))  # noqa: B023
        pull, usual_planned = timed(lambda: usual.plan(nodes, share if replace else None))  # noqa: B023
        if sorted(pull.tolist()) != sorted(plan.pull.tolist()):
            raise SystemExit(f"{size}: the two sides disagree at minibatch {step}")
        _, usual_committed = timed(lambda: usual.commit(pulled, outs[1]))  # noqa: B023
        if replace:
            victims = rng.permutation(capacity)[: plan.replaced]
            some = pulled[: plan.replaced]
            copies.append(timed(lambda: rows.__setitem__(victims, some))[1])  # noqa: B023
            replaced.append(plan.replaced)
        if step >= interval:
            times[f"ours_{kind}"].append(1e3 * (planned + committed))
            times[f"usual_{kind}"].append(1e3 * (usual_planned + usual_committed))
    summary: dict[str, Any] = {
        "name": size,
        "slots": capacity,
        "halo": halo_nodes,
        "ids": count,
        "features": width,
        "replaced_rows": statistics.median(replaced),
        "copy_ms": 1e3 * statistics.median(copies),
    }
    for name, values in times.items():
        summary[f"{name}_ms"] = statistics.median(values)
    for kind in ("plain", "replace"):
        ratios = [b / a for a, b in zip(times[f"ours_{kind}"], times[f"usual_{kind}"], strict=True)]
        summary[f"ratio_{kind}"] = statistics.median(ratios)
        summary[f"ratio_{kind}_spread"] = [min(ratios), max(ratios)]
    summary["replace_over_plain"] = (summary["ours_replace_ms"] - summary["copy_ms"]) / summary[
        "ours_plain_ms"
    ]
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", action="append", choices=list(SIZES), help="default: all")
    parser.add_argument("--width", type=int, default=100, help="float32 features per row")
    parser.add_argument("--minibatches", type=int, default=40)
    parser.add_argument("--interval", type=int, default=4, help="replace at every n-th minibatch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    _, warm_s = timed(warm)
    found = [
        measure(size, args.width, args.minibatches, args.interval, args.seed)
        for size in args.size or SIZES
    ]
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{platform.processor() or platform.machine()}, kernels ready in {warm_s:.1f} s")
    print("medians in ms of plan + commit; ratio = usual way / Rudder, [lowest, highest]")
    for row in found:
        print(f"{row['name']}: {row['slots']:,} slots, {row['halo']:,} halo, {row['ids']:,} ids")
        for kind in ("plain", "replace"):
            low, high = row[f"ratio_{kind}_spread"]
            print(
                f"  {kind:8} Rudder {row[f'ours_{kind}_ms']:8.2f}  usual "
                f"{row[f'usual_{kind}_ms']:8.2f}  ratio {row[f'ratio_{kind}']:6.1f} "
                f"[{low:.1f}, {high:.1f}]"
            )
        print(
            f"  a replacement of {row['replaced_rows']:,.0f} rows, without copying them "
            f"({row['copy_ms']:.2f} ms), costs {row['replace_over_plain']:.2f} plain minibatches"
        )


if __name__ == "__main__":
    main()
