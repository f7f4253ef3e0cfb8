"""What agents save in replays, beside rules, classifiers and controls that tell skill from rate.

Traces whose accesses drift, on two graphs, at seeds that no model has seen, and the recorded trace
``debian-demo``, which has one seed. On each, all on one and the same trace: rules, the classifiers
that ship, and an agent without any example (``zero-shot``), with those of its template alone
(``examples``), with these and a fitted threshold (``calibrated``, where ``--calibration`` gives one
of ``AGENT:shots=0,without=history``), and with these and its own past (``few-shot``).

Agents answer after ``--latency`` minibatches, so do their controls: ``random`` at an agent's own
replacement rate, and its own answers in another order (``shuffled``), which keeps their number. So
few questions are asked in a run that one draw of a control may lie far from its mean: each control
is the mean of several. Differences are paired by scenario and seed, with 95 % intervals by
Student's t over seeds.

A run under one controller is measured once and kept; whoever starts again goes on behind it.

python -I tests/benchmarks/study_agents.py --home DIR [--agent smollm2-135m]
    [--calibration NAME_OR_DIR] [--scenarios PATTERN …] [--seeds 5] [--stop-after SECONDS] [--json]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

import traces
from cells import Cells, Found, key_of
from study_classifiers import ESTIMATORS, ORACLE, RULES, difference

from rudder.engine import RunOptions
from rudder.home import Home
from rudder.model.find import locate
from rudder.replay.clock import TimeModel
from rudder.replay.engine import ReplayEngine
from rudder.replay.loaded import Loaded
from rudder.result import RunResult
from rudder.running import new_run_id
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.trace import Trace, TraceRow, find_trace

DEMO = "debian-demo"
DRIFTING: dict[str, Any] = {
    "parts": 2, "policy": "massivegnn", "buffer": 0.5, "seed_order": "communities", "phases": 4,
}  # fmt: skip
SCENARIOS: dict[str, dict[str, Any]] = {
    "debian, drifting": {**DRIFTING, "graph": "debian", "batch_size": 1000, "epochs": 8},
    "tolokers, drifting": {
        **DRIFTING, "graph": traces.CASES["tolokers"].graph, "batch_size": 200, "epochs": 6,
    },
    DEMO: {"policy": "massivegnn", "buffer": 0.5},
}  # fmt: skip
"""Fields of the scenarios; of the recorded trace those that a replay may change."""

DRAWS = 4
"""Of each control, which stands for their mean."""


class Steps(TimeModel):
    """A minibatch takes one second, and nothing else takes any: latencies count minibatches."""

    def fetch_s(self, rank: int, traced: TraceRow, fetched: int) -> float:
        return 0.0

    def compute_s(self, rank: int, traced: TraceRow) -> float:
        return 1.0


@dataclass(frozen=True)
class Cell:
    """A run, of an agent with its controls.

    Attributes:
        scenario: name in :data:`SCENARIOS`.
        name: of the controller in the tables.
        controller: its spec as text.
    """

    scenario: str
    fields: dict[str, Any]
    name: str
    controller: str
    controls: bool


def measure(place: Home, cell: Cell, loaded: Loaded) -> dict[str, Any]:
    """Rows fetched by name of controller, and what belongs to them."""
    if cell.scenario == DEMO:
        trace = Trace.open(find_trace(DEMO, place))
        scenario = trace.manifest.scenario.change(**cell.fields)
    else:
        scenario = Scenario.make(**cell.fields)
        trace = traces.sampled(place, scenario)
    engine = ReplayEngine(trace, make_time=lambda trace, scenario: Steps(), loaded=loaded)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="rudder-study-") as folder:

        def run(name: str, controller: Spec) -> RunResult:
            options = RunOptions(place, Path(folder) / new_run_id())
            result = engine.run(scenario, controller, options)
            found[name] = _facts(result)
            return result

        spec = locate(Spec.parse(cell.controller), place)
        result = run(cell.name, spec)
        if cell.controls:
            latency = {"latency_s": spec.params["latency_s"]}
            rate = found[cell.name]["replaces"] or 0.0
            answers = str(result.run_dir)
            drawn = [
                run(f"{cell.name}: {kind} {draw}", Spec(name, {**params, **latency, "draw": draw}))
                for kind, name, params in (
                    ("rate", "random", {"p": rate}),
                    ("order", "shuffled", {"run": answers}),
                )
                for draw in range(DRAWS)
            ]
            found[cell.name]["changed"] = statistics.fmean(map(changed, drawn[DRAWS:]))
            for kind in ("rate", "order"):
                of = [found.pop(f"{cell.name}: {kind} {draw}") for draw in range(DRAWS)]
                found[f"{cell.name}: {kind}"] = {
                    key: statistics.fmean(one[key] for one in of) for key in ("fetched", "replaces")
                }
    return {"runs": found}


def changed(control: RunResult) -> float:
    """Share of the answers that a control in another order gives otherwise."""
    words = [d["decision"]["explanation"] for d in control.decisions]
    return words.count("changed") / len(words)


def _facts(result: RunResult) -> dict[str, Any]:
    steering = result.details["steering"]
    return {
        "fetched": result.summary["fetched"],
        "communication": result.summary["communication_vs_no_buffer"],
        "regret": result.summary["regret"],
        "valid": result.summary["valid_share"],
        "pass_at_1": steering["pass_at_1"],
        "constant": steering["pass_at_1_constant"],
        "asked": steering["asked"],
        "replaces": steering["replace_share"],
    }


def controllers(agent: str, latency: int, calibration: str) -> dict[str, tuple[str, bool]]:
    """Specs by name, and whether controls belong to them."""
    spec = Spec.parse(agent)

    def variant(**params: Any) -> tuple[str, bool]:
        return str(Spec(spec.name, {**spec.params, "latency_s": latency - 0.5, **params})), True

    found = {name: (name, False) for name in (*RULES, ORACLE, *ESTIMATORS)}
    found["zero-shot"] = variant(shots=0, without="examples")
    found["examples"] = variant(shots=0, without="history")
    found["few-shot"] = variant(shots=4, without="")
    if calibration:
        found["calibrated"] = variant(shots=0, without="history", calibration=calibration)
    return found


def merged(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One record per scenario and seed, with the runs of all its controllers."""
    whole: dict[tuple[str, int], dict[str, Any]] = {}
    for record in found:
        cell = record["cell"]
        key = cell["scenario"], cell["fields"]["seed"]
        runs = whole.setdefault(key, {"cell": cell, "runs": {}})["runs"]
        runs.update(record["runs"])
    return list(whole.values())


def table(cells: Sequence[Mapping[str, Any]], names: Iterable[str]) -> list[dict[str, Any]]:
    """A row per controller: means, and differences in percent."""
    rows = []
    for name in names:
        runs = [cell["runs"][name] for cell in cells]
        oracle = [cell["runs"][ORACLE]["fetched"] for cell in cells]
        agent = f"{name}: rate" in cells[0]["runs"]

        def mean(key: str, runs: Sequence[Mapping[str, Any]] = runs) -> float:
            return statistics.fmean(run[key] or 0.0 for run in runs)

        rows.append(
            {
                "controller": name,
                "communication": mean("communication"),
                "regret to MIN": mean("regret"),
                "regret to oracle": statistics.fmean(
                    run["fetched"] / least for run, least in zip(runs, oracle, strict=True)
                ),
                "replaces": mean("replaces"),
                "its rate": statistics.fmean(
                    cell["runs"][f"{name}: rate"]["replaces"] for cell in cells
                )
                if agent
                else None,
                "against the best rule, %": difference(cells, name, None),
                "against its rate, %": difference(cells, name, f"{name}: rate") if agent else "–",
                "against its order, %": difference(cells, name, f"{name}: order") if agent else "–",
                "changed by order": mean("changed") if agent else None,
                "valid": mean("valid") if agent else None,
                "Pass@1": mean("pass_at_1") if agent else None,
                "best constant": mean("constant") if agent else None,
                "questions": round(mean("asked")),
            }
        )
    return rows


def main() -> None:
    parser = traces.parser(__doc__.splitlines()[0])
    parser.add_argument("--agent", default="smollm2-135m")
    parser.add_argument("--calibration", default="", help="of 'rudder calibrate'")
    parser.add_argument("--latency", type=int, default=4, help="minibatches that an answer takes")
    parser.add_argument("--scenarios", nargs="+", default=["*"], metavar="PATTERN")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=100, help="no model may have seen it")
    parser.add_argument("--stop-after", type=float, help="seconds, after which no run is begun")
    args = parser.parse_args()
    place = traces.home(args.home)
    known = controllers(args.agent, args.latency, args.calibration)
    cells = [
        Cell(scenario, {**fields, "seed": seed}, name, *known[name])
        for seed in range(args.first_seed, args.first_seed + args.seeds)
        for scenario, fields in SCENARIOS.items()
        if any(fnmatch(scenario, pattern) for pattern in args.scenarios)
        if scenario != DEMO or seed == args.first_seed
        for name in known
    ]
    kept, loaded = Cells(place.root / "study-agents.jsonl"), Loaded()

    def wanted(found: Found) -> Iterable[Cell]:
        return cells

    until = None if args.stop_after is None else time.monotonic() + args.stop_after
    kept.work(wanted, lambda cell: measure(place, cell, loaded), until)
    found = kept.found()
    whole = [
        cell
        for cell in merged(found[key_of(c)] for c in cells if key_of(c) in found)
        if all(name in cell["runs"] for name in known)
    ]
    tables = {}
    for scenario in dict.fromkeys(cell["cell"]["scenario"] for cell in whole):
        of = [cell for cell in whole if cell["cell"]["scenario"] == scenario]
        tables[f"{scenario}: {len(of)} seed(s)"] = table(of, known)
    traces.show(tables, as_json=args.json)


if __name__ == "__main__":
    main()
