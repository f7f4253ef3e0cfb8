"""What better timing of replacements could save: the best constant schedule against the oracle.

Headroom = (best constant schedule - timing-oracle) / timing-oracle, in rows fetched and in modelled
seconds of all epochs, first one included. Constant schedules: never, always, and every 2 to 64
minibatches, answers at once. Two oracles look 32 minibatches ahead: the one that saves rows is
compared in rows, the one that saves seconds in seconds. Both are greedy, no bounds: headroom is
negative where a constant schedule beats them. Seconds at --rate Mbit/s: of the calibrated model
--time FILE, or, without one, stated seconds per input node.

A cell of the table is measured once and kept in --results. Any number of calls may work on the same
file at once; --stop-after ends one after its cell. Where a cell of the first seed shows 5 % or
more, the other seeds are measured too; then the middle is shown, least and greatest behind it.

python -I tests/benchmarks/study_headroom.py --home DIR [--cases tolokers] [--policies score]
    [--drifts uniform communities] [--buffers 0.05 0.25] [--set batch_size=100,phases=8]
    [--time calibration.json] [--jobs 2] [--stop-after 600] [--json]
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

import traces
from cells import Cells, Found, key_of

from rudder.home import Home
from rudder.replay.clock import RecordedTime
from rudder.replay.engine import MakeTime
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.timing import Machine, calibrated_time
from rudder.trace import Trace, TraceRow

POLICIES = ("score", "score-published", "massivegnn")
SCHEDULES = {
    "never": "random:p=0", "always": "always",
    **{f"every {k}": f"fixed:interval={k}" for k in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)},
}  # fmt: skip
OBJECTIVES = {"rows": "communication", "seconds": "seconds"}
"""What is compared: what its oracle saves."""
DRIFTS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "communities": {"seed_order": "communities", "phases": 4},
    "degree": {"seed_order": "degree", "phases": 4},
    "fan-out": {"fan_out": (4, 5), "fan_out_half": (10, 25)},
    "batch": {"batch_half": 4},
}
"""Scenario fields; ``…_half``: from the middle epoch on (batch: divided by)."""
SHORT = 0.3
"""Share of a case's epochs that are replayed: 40 to 50 minibatches per trainer."""
FOUND = 0.05
"""Headroom that is worth other seeds, and bold."""
SAMPLE_S, COMPUTE_S = 2.5e-6, 5e-6
"""Seconds per input node; medians of real runs of ``debian``, 4 trainers on 2 shared cores."""


@dataclass(frozen=True)
class Cell:
    """One cell of the table.

    Attributes:
        changes: of scenario fields, beside those of the drift: a Spec's parameters as text.
        epochs: None = the case's own, shortened.
        latency_s: of the oracle's answers.
        time: SHA-256 of the file of the calibrated model, 12 hex digits; empty = the stated one.
    """

    case: str
    drift: str
    policy: str
    buffer: float
    seed: int
    fill: str
    changes: str
    epochs: int | None
    rate: float
    horizon: int
    latency_s: float
    time: str


class StatedTime(RecordedTime):
    """Sampling and computing cost seconds per input node; DDP's barrier."""

    barrier = True

    def sample_s(self, rank: int, traced: TraceRow) -> float:
        return SAMPLE_S * (traced.local + len(traced.remote_ids))

    def compute_s(self, rank: int, traced: TraceRow) -> float:
        return COMPUTE_S * (traced.local + len(traced.remote_ids))


def stated_time(trace: Trace, scenario: Scenario) -> StatedTime:
    return StatedTime(scenario, trace.manifest.feature_bytes)


def scenario(cell: Cell) -> Scenario:
    """What the cell's trace is sampled from."""
    case = traces.CASES[cell.case]
    fields = {"batch_size": case.batch_size, "seed": cell.seed, **DRIFTS[cell.drift]}
    fields |= Spec.parse(f"changes:{cell.changes}").params if cell.changes else {}
    # Quarters of a batch make an epoch four times as long.
    usual = 2 if "batch_half" in fields else max(2, round(SHORT * case.epochs))
    fields["epochs"] = cell.epochs or usual
    half = max(fields["epochs"] // 2, 1)
    if "fan_out_half" in fields:
        fields["fan_out_at"] = {half: fields.pop("fan_out_half")}
    if "batch_half" in fields:
        fields["batch_size_at"] = {half: max(fields["batch_size"] // fields.pop("batch_half"), 1)}
    return case.scenario(**fields)


def measure(place: Home, model: Path | None, cell: Cell) -> dict[str, Any]:
    """Rows fetched and modelled seconds of every schedule and of both oracles."""
    start = time.monotonic()
    trace = traces.sampled(place, scenario(cell))
    time_of = calibrated_time(Machine.load(model)) if model else stated_time
    run = functools.partial(_run, place, trace, time_of, cell)
    oracle = f"timing-oracle:horizon={cell.horizon},latency_s={cell.latency_s}"
    found = {
        "constant": {name: run(spec) for name, spec in SCHEDULES.items()},
        "oracle": {name: run(f"{oracle},objective={OBJECTIVES[name]}") for name in OBJECTIVES},
        "scenario": trace.manifest.scenario.model_dump(mode="json"),
        "minibatches": trace.common_length,
        "took_s": round(time.monotonic() - start, 1),
    }
    rows, seconds = (f"{headroom(found, what):.1%}" for what in OBJECTIVES)
    print(f"{cell}: {rows} rows, {seconds} seconds", file=sys.stderr, flush=True)
    return found


def _run(
    place: Home, trace: Trace, time_of: MakeTime, cell: Cell, controller: str
) -> dict[str, float]:
    fields = {"policy": cell.policy, "fill": cell.fill, "buffer": cell.buffer, "rate": cell.rate}
    result = traces.replayed(place, trace, controller, time=time_of, **fields)
    return {"rows": result.summary["fetched"], "seconds": _seconds(result)}


def _seconds(result: RunResult) -> float:
    """Of all epochs, each as long as its slowest trainer. The summary leaves the first out."""
    epochs = zip(*result.details["epochs"], strict=True)
    return sum(max(found["seconds"] for found in ranks) for ranks in epochs)


def best_constant(found: Mapping[str, Any], what: str) -> str:
    """The schedule with the fewest ``rows`` or ``seconds``."""
    runs = found["constant"]
    return min(runs, key=lambda schedule: float(runs[schedule][what]))


def headroom(found: Mapping[str, Any], what: str) -> float:
    """Share of the oracle's ``rows`` or ``seconds`` that the best constant schedule adds."""
    best = found["constant"][best_constant(found, what)][what]
    return float(best / found["oracle"][what][what] - 1)


def wanted(cells: Sequence[Cell], seeds: int, found: Found) -> Iterator[Cell]:
    """All cells with the first seed; then, where they found something, with the others."""
    yield from cells
    for cell in cells:
        first = found.get(key_of(cell))
        if first and any(headroom(first, what) >= FOUND for what in OBJECTIVES):
            yield from (replace(cell, seed=cell.seed + k) for k in range(1, seeds))


def _work(
    place: Home, model: Path | None, results: Path, cells: Sequence[Cell], seeds: int, until: float
) -> None:
    Cells(results).work(
        functools.partial(wanted, cells, seeds), functools.partial(measure, place, model), until
    )


def table(found: Found, cells: Sequence[Cell], seeds: int) -> list[dict[str, Any]]:
    """A row per case, drift and policy, a column per buffer: headroom in rows / in seconds, %."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for cell in sorted(cells, key=lambda cell: cell.buffer):
        head = (traces.CASES[cell.case].label, cell.drift, cell.policy)
        row = rows.setdefault(head, dict(zip(("case", "drift", "policy"), head, strict=True)))
        keys = [key_of(replace(cell, seed=cell.seed + k)) for k in range(seeds)]
        measured = [found[key] for key in keys if key in found]
        row[f"{cell.buffer:.0%}"] = " / ".join(
            _shown([headroom(one, what) for one in measured]) for what in OBJECTIVES
        ) if measured else None  # fmt: skip
    order = {cell: at for at, cell in enumerate((*traces.CASES, *DRIFTS, *POLICIES))}
    labels = {case.label: name for name, case in traces.CASES.items()}
    return sorted(
        rows.values(),
        key=lambda row: (order[labels[row["case"]]], order[row["drift"]], order[row["policy"]]),
    )


def _shown(values: Sequence[float]) -> str:
    middle = statistics.median(values)
    text = f"{100 * middle:.1f}"
    if middle >= FOUND:
        text = f"**{text}**"
    if len(values) > 1:
        text += f" ({100 * min(values):.1f} to {100 * max(values):.1f})"
    return text


def _cells(args: argparse.Namespace) -> list[Cell]:
    """In the order in which they are measured."""
    model = hashlib.sha256(args.time.read_bytes()).hexdigest()[:12] if args.time else ""
    return [
        Cell(
            case, drift, policy, buffer, args.seed, args.fill, args.set, args.epochs, args.rate,
            args.horizon, args.latency, model,
        )
        for buffer in args.buffers
        for drift in args.drifts
        for case in args.cases
        for policy in args.policies
    ]  # fmt: skip


def main() -> None:
    parser = traces.parser(__doc__.splitlines()[0])
    parser.add_argument("--drifts", nargs="+", choices=DRIFTS, default=list(DRIFTS))
    parser.add_argument("--buffers", nargs="+", type=float, default=[0.25, 0.5, 0.05])
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--fill", choices=("degree", "random", "empty"), default="degree")
    parser.add_argument("--set", default="", help="scenario fields, such as phases=8,layers=2")
    parser.add_argument("--epochs", type=int, help="of every trace, instead of the case's own")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seeds", type=int, default=3, help="where something is found")
    parser.add_argument("--rate", type=float, default=100.0, help="Mbit/s")
    parser.add_argument("--time", type=Path, help="calibrated model of time")
    parser.add_argument("--horizon", type=int, default=32, help="minibatches the oracle looks at")
    parser.add_argument("--latency", type=float, default=0.0, help="s, of the oracle's answers")
    parser.add_argument("--results", type=Path, help="JSON lines; default: in --home")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--stop-after", type=float, help="s, after which no cell is begun; 0: show only"
    )
    args = parser.parse_args()
    place = traces.home(args.home)
    results = args.results or place.root / "headroom.jsonl"
    cells = _cells(args)
    until = float("inf") if args.stop_after is None else time.monotonic() + args.stop_after
    # A fresh interpreter each: threads of numerical libraries do not survive a fork.
    context = multiprocessing.get_context("spawn")
    work = (place, args.time, results, cells, args.seeds, until)
    others = [context.Process(target=_work, args=work) for _ in range(args.jobs - 1)]
    for process in others:
        process.start()
    _work(*work)
    for process in others:
        process.join()
    failed = sum(process.exitcode != 0 for process in others)
    found = Cells(results).found()
    missing = sum(key_of(cell) not in found for cell in wanted(cells, args.seeds, found))
    if args.json:
        keys = {key_of(cell) for cell in wanted(cells, args.seeds, found)} & set(found)
        print(json.dumps([found[key] for key in sorted(keys)], indent=2))
    else:
        rows = table(found, cells, args.seeds)
        title = "Headroom above the best constant schedule, rows / seconds, %"
        traces.show({title: rows}, as_json=False)
    if missing or failed:
        raise SystemExit(f"{missing} cells not measured, {failed} processes failed")


if __name__ == "__main__":
    main()
