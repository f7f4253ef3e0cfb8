"""How fast a trace is replayed, and in how much memory.

Against training: the same trace, its replay against what its minibatches took when they were
trained for real: in the trace itself if it was recorded in a real run (--trace), else in a run
directory of the same scenario (--run). Long traces: synthetic, Zipf-like ids, in growing length,
each replayed in a process of its own; resident memory at its highest.

python -I tests/benchmarks/bench_replay.py [--trace TRACE] [--run DIR]
    [--minibatches 2000 20000 100000] [--ids 5000] [--home DIR] [--json]
"""

from __future__ import annotations

import multiprocessing
import re
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

import numpy as np
import traces

from rudder.buffer import warm
from rudder.home import Home
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.trace import Trace, TraceRow
from rudder.trace.find import find_trace
from rudder.trace.format import Manifest, RankFacts, seeds_digest
from rudder.trace.writer import TraceWriter, start_trace

RUNS = {
    "static": ("static", "degree"),
    "always, score": ("always", "score"),
    "always, lookahead": ("always", "lookahead"),
}
NODES = 1_000_000
BUFFER = 50_000
REPLAYS = 9
POOL = 256
"""Distinct minibatches of a synthetic trace; they come in random order."""


def trained_s(trace: Trace, run: Path | None) -> float | None:
    """Seconds per epoch that training this trace's minibatches really took; None = not known."""
    if run is not None:
        found = RunResult.load(run)
        epochs, count = found.scenario.epochs, trace.common_length / trace.manifest.scenario.epochs
        real = len(found.minibatches) / trace.manifest.ranks / epochs
        if found.scenario.graph != trace.manifest.scenario.graph or real != count:
            raise SystemExit(f"{run}: {real} minibatches per epoch, the trace has {count}")
        seconds: float = found.summary["epoch_seconds"]
        return seconds
    ranks = [sum(r.stall_s + r.compute_s for r in trace.minibatches(k)) for k in trace.ranks]
    return max(ranks) / trace.manifest.scenario.epochs or None


def against_training(place: Home, trace: Trace, run: Path | None) -> list[dict[str, Any]]:
    """Per epoch; the middle one of some replays, the first one of each kind left out."""
    real, epochs = trained_s(trace, run), trace.manifest.scenario.epochs
    rows = []
    for name, (controller, policy) in RUNS.items():
        took, used = [], []
        for _ in range(1 + REPLAYS):
            start, busy = time.perf_counter(), time.process_time()
            traces.replay(place, trace, controller, policy=policy)
            took.append((time.perf_counter() - start) / epochs)
            used.append((time.process_time() - busy) / epochs)
        took, used = sorted(took[1:]), sorted(used[1:])
        replay_s, processor_s = took[REPLAYS // 2], used[REPLAYS // 2]
        row = {
            "replayed": name,
            "minibatches, all ranks": sum(map(trace.length, trace.ranks)) // epochs,
            "training, s": real,
            "replay, s": replay_s,
            "least, s": took[0],
            "most, s": took[-1],
            "of it processor, s": processor_s,
            "times as fast": real / replay_s if real else None,
            "by processor seconds": real / processor_s if real else None,
        }
        rows.append(row)
    return rows


def synthetic(folder: Path, minibatches: int, ids: int) -> Trace:
    """Two trainers that share ``minibatches``, each of ``ids`` remote nodes."""
    half, count = NODES // 2, minibatches // 2
    scenario = Scenario.make(graph="synthetic", parts=2, epochs=1, batch_size=500)
    manifest = Manifest(
        f"synthetic-{minibatches}-{ids}", "sampler", scenario, "", "", NODES, 10 * NODES, 400,
        (half, half), (half, half),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    halos = [np.arange(half, NODES), np.arange(half)]
    start_trace(folder, manifest, halos, np.arange(NODES, 0, -1).astype(np.int32))
    for rank, halo in enumerate(halos):
        pool = [np.sort(halo[_zipf(rng, half, ids)]) for _ in range(POOL)]
        facts = RankFacts(rank, (count,), seeds_digest(halo))
        with TraceWriter(folder, manifest, facts) as writer:
            for step, which in enumerate(rng.integers(0, POOL, count)):
                writer.append(TraceRow(0, step, pool[which], ids, 500))
    return Trace.open(folder)


def _zipf(rng: np.random.Generator, nodes: int, count: int) -> np.ndarray:
    """Distinct numbers below ``nodes``; low ones are drawn more often, about as 1/rank."""
    drawn: np.ndarray = np.unique((nodes ** rng.random(6 * count)).astype(np.int64) - 1)
    return rng.choice(drawn, count, replace=False)


def _replayed(
    place: Home, folder: Path, controller: str, policy: str
) -> tuple[float, float, float]:
    """Seconds, processor seconds, and MiB at most; in a process of its own."""
    warm()
    start, busy = time.perf_counter(), time.process_time()
    traces.replay(place, Trace.open(folder), controller, policy=policy, buffer=BUFFER)
    took, used = time.perf_counter() - start, time.process_time() - busy
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    return took, used, int(peak[1]) / 1024


def long_traces(place: Home, lengths: list[int], ids: int, run: str) -> list[dict[str, Any]]:
    controller, policy = RUNS[run]
    rows = []
    for minibatches in lengths:
        with tempfile.TemporaryDirectory(prefix="rudder-synthetic-") as made:
            folder = Path(made) / "synthetic.trace"
            start = time.perf_counter()
            synthetic(folder, minibatches, ids)
            written = time.perf_counter() - start
            size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                task = pool.submit(_replayed, place, folder, controller, policy)
                took, used, peak = task.result()
        row = {
            "minibatches": minibatches, "ids each": ids, "replayed": run,
            "writing, s": written, "trace, MB": size / 1e6, "replay, s": took,
            "of it processor, s": used, "processor, ms per minibatch": 1e3 * used / minibatches,
            "peak memory, MiB": peak,
        }  # fmt: skip
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def main() -> None:
    parser = traces.parser(__doc__.splitlines()[0])
    parser.add_argument("--trace", default="debian-demo", help="directory or name")
    parser.add_argument("--run", type=Path, help="run directory of a real run of its scenario")
    parser.add_argument("--minibatches", nargs="*", type=int, default=[1000, 4000])
    parser.add_argument("--ids", type=int, default=5000)
    parser.add_argument("--replayed", choices=RUNS, default="always, score")
    args = parser.parse_args()
    place = traces.home(args.home)
    warm()
    trace = Trace.open(find_trace(args.trace, place))
    traces.show(
        {
            "Replay against training, per epoch": against_training(place, trace, args.run),
            "Long traces": long_traces(place, args.minibatches, args.ids, args.replayed),
        },
        as_json=args.json,
    )


if __name__ == "__main__":
    main()
