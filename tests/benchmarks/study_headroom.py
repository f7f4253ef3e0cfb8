"""What better timing of replacements could save: the best constant schedule against the oracle.

Headroom = (best constant schedule - timing-oracle) / timing-oracle, in rows fetched and in modelled
seconds per epoch. Constant schedules: never, always, and every 2 to 64 minibatches. The oracle
looks 32 minibatches ahead and saves rows; where its rows or seconds exceed a schedule's, headroom
is negative: it is greedy, no bound. Seconds: links of --rate Mbit/s; sampling and computing per
input node as measured in real runs; trainers wait for the slowest at each minibatch.

python -I tests/benchmarks/study_headroom.py [--cases tolokers] [--drifts uniform communities]
    [--buffers 0.05 0.25] [--policies score] [--fill empty] [--epochs 4] [--home DIR] [--json]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

import traces

from rudder.home import Home
from rudder.replay.clock import RecordedTime
from rudder.scenario import Scenario
from rudder.trace import Trace, TraceRow

POLICIES = ("score", "score-published", "massivegnn")
SCHEDULES = {
    "never": "random:p=0", "always": "always",
    **{f"every {k}": f"fixed:interval={k}" for k in (2, 4, 8, 16, 32, 64)},
}  # fmt: skip
DRIFTS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "communities": {"seed_order": "communities", "phases": 4},
    "degree": {"seed_order": "degree", "phases": 4},
    "fan-out": {"fan_out": (4, 5), "fan_out_half": (10, 25)},
    "batch": {"batch_half": 4},
}
"""Scenario fields; ``…_half``: from the middle epoch on (batch: divided by)."""
SAMPLE_S, COMPUTE_S = 2.5e-6, 5e-6
"""Seconds per input node; medians of real runs of ``debian``, 4 trainers on 2 shared cores."""


class StatedTime(RecordedTime):
    """Sampling and computing cost seconds per input node; DDP's barrier."""

    barrier = True

    def __init__(self, scenario: Scenario, row_bytes: int, sample_s: float, compute_s: float):
        super().__init__(scenario, row_bytes)
        self._sample_s, self._compute_s = sample_s, compute_s

    def sample_s(self, rank: int, traced: TraceRow) -> float:
        return self._sample_s * (traced.local + len(traced.remote_ids))

    def compute_s(self, rank: int, traced: TraceRow) -> float:
        return self._compute_s * (traced.local + len(traced.remote_ids))


def stated_time(trace: Trace, scenario: Scenario) -> StatedTime:
    return StatedTime(scenario, trace.manifest.feature_bytes, SAMPLE_S, COMPUTE_S)


def scenario(case: traces.Case, drift: str, epochs: int | None) -> Scenario:
    fields = dict(DRIFTS[drift], epochs=epochs or case.epochs)
    half = max(fields["epochs"] // 2, 1)
    if "fan_out_half" in fields:
        fields["fan_out_at"] = {half: fields.pop("fan_out_half")}
    if "batch_half" in fields:
        fields["batch_size_at"] = {half: max(case.batch_size // fields.pop("batch_half"), 1)}
    return case.scenario(**fields)


def study(
    place: Home, case: traces.Case, trace: Trace, drift: str, buffers: Sequence[float],
    policies: Sequence[str], fill: str, rate: float, horizon: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """A row per buffer and policy."""
    rows = []
    for buffer in buffers:
        for policy in policies:
            fields = {"policy": policy, "fill": fill, "buffer": buffer, "rate": rate}
            found = {name: _run(place, trace, spec, fields) for name, spec in SCHEDULES.items()}
            oracle = _run(place, trace, f"timing-oracle:horizon={horizon}", fields)
            row: dict[str, Any] = {
                "case": case.label, "drift": drift, "buffer": f"{buffer:.0%}", "policy": policy,
                "fill": fill, "always / never": found["always"][0] / found["never"][0],
            }  # fmt: skip
            for at, what in enumerate(("rows", "seconds")):
                best = min(found, key=lambda schedule: found[schedule][at])
                row[f"best constant, {what}"] = best
                row[f"headroom, {what}"] = found[best][at] / oracle[at] - 1
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    return rows


def _run(place: Home, trace: Trace, controller: str, fields: dict[str, Any]) -> tuple[float, float]:
    """Rows fetched, and modelled seconds per epoch."""
    found = traces.replay(place, trace, controller, time=stated_time, **fields)
    return found["fetched"], found["epoch_seconds"]


def main() -> None:
    parser = traces.parser(__doc__.splitlines()[0])
    parser.add_argument("--drifts", nargs="+", choices=DRIFTS, default=list(DRIFTS))
    parser.add_argument("--buffers", nargs="+", type=float, default=[0.05, 0.25, 0.5])
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--fill", choices=("degree", "random", "empty"), default="degree")
    parser.add_argument("--epochs", type=int, help="of every trace, instead of the case's own")
    parser.add_argument("--rate", type=float, default=100.0, help="Mbit/s")
    parser.add_argument("--horizon", type=int, default=32, help="minibatches the oracle looks at")
    args = parser.parse_args()
    place = traces.home(args.home)
    rows = []
    for name in args.cases:
        case = traces.CASES[name]
        for drift in args.drifts:
            trace = traces.sampled(place, scenario(case, drift, args.epochs))
            rows += study(
                place, case, trace, drift, args.buffers, args.policies, args.fill, args.rate,
                args.horizon,
            )  # fmt: skip
    traces.show({"Headroom above the best constant schedule": rows}, as_json=args.json)


if __name__ == "__main__":
    main()
