"""What fitted classifiers save in replays, beside rules and the controls that tell skill from rate.

Scenarios of a suite at seeds that no model has seen; in each, on one and the same trace: rules,
every classifier, and for each of them two controls: ``random`` at its own replacement rate, and
its own answers in another order (``shuffled``). Differences are paired by scenario and seed, with
95 % intervals by Student's t over seeds.

python -I tests/benchmarks/study_classifiers.py --models DIR [--against DIR_OF_OTHER_LABELS]
    [--suite train] [--scenarios PATTERN …] [--seeds 10] [--first-seed 100] [--home DIR] [--json]

DIR holds a directory per model, as ``rudder fit --all --out DIR`` writes them. ``--against``: the
same estimators fitted to other labels, compared with those of ``--models`` one by one.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

import traces
from cells import Cells, Found, key_of
from scipy import stats

from rudder.engine import RunOptions
from rudder.home import Home
from rudder.replay.engine import ReplayEngine
from rudder.result import RunResult
from rudder.running import new_run_id
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.suite import find_suite

RULES = ("static", "fixed", "threshold", "always")
ESTIMATORS = ("logistic", "forest", "svm", "xgboost", "mlp", "tabnet")
ORACLE = "timing-oracle"


@dataclass(frozen=True)
class Cell:
    """A scenario at a seed, with everything that is run on its trace."""

    scenario: str
    fields: dict[str, Any]
    models: tuple[str, ...]
    against: tuple[str, ...]


def measure(place: Home, cell: Cell) -> dict[str, Any]:
    """Rows fetched by name of controller, and what belongs to them."""
    scenario = Scenario.make(**cell.fields)
    engine = ReplayEngine(traces.sampled(place, scenario))
    with tempfile.TemporaryDirectory(prefix="rudder-study-") as folder:
        runs = _runs(engine, scenario, place, Path(folder), cell)
        return {"runs": runs}


def _runs(
    engine: ReplayEngine, scenario: Scenario, place: Home, folder: Path, cell: Cell
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}

    def run(name: str, controller: Spec) -> RunResult:
        result = engine.run(scenario, controller, RunOptions(place, folder / new_run_id()))
        steering = result.details["steering"]
        found[name] = {
            "fetched": result.summary["fetched"],
            "communication": result.summary["communication_vs_no_buffer"],
            "regret": result.summary["regret"],
            "replace_share": steering["replace_share"],
            "outside": steering["outside_support_share"],
        }
        return result

    for rule in RULES:
        run(rule, Spec.parse(rule))
    run(ORACLE, Spec.parse(ORACLE))
    for path in (*cell.models, *cell.against):
        other = path in cell.against
        name = Path(path).name + (" (other labels)" if other else "")
        result = run(name, Spec(Path(path).name, {"model": path}))
        if other:
            continue
        rate = found[name]["replace_share"] or 0.0
        run(f"{name}: rate", Spec("random", {"p": rate}))
        control = run(f"{name}: shuffled", Spec("shuffled", {"run": str(result.run_dir)}))
        words = [d["decision"]["explanation"] for d in control.decisions]
        found[name]["changed"] = words.count("changed") / max(len(words), 1)
    for row in found.values():
        row["regret_to_oracle"] = row["fetched"] / found[ORACLE]["fetched"]
    return found


def table(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row per controller: means over scenarios and seeds, and differences in percent."""
    rows = []
    for name in _names(cells):
        if ": " in name or "(other" in name:
            continue
        runs = [cell["runs"][name] for cell in cells]
        row: dict[str, Any] = {
            "controller": name,
            "communication": statistics.fmean(r["communication"] for r in runs),
            "regret to MIN": statistics.fmean(r["regret"] for r in runs),
            "regret to oracle": statistics.fmean(r["regret_to_oracle"] for r in runs),
            "replaces": statistics.fmean(r["replace_share"] or 0.0 for r in runs),
            "against the best rule, %": difference(cells, name, None),
        }
        learnt = f"{name}: rate" in cells[0]["runs"]
        row["against its rate, %"] = difference(cells, name, f"{name}: rate") if learnt else "–"
        row["against its order, %"] = (
            difference(cells, name, f"{name}: shuffled") if learnt else "–"
        )
        row["answers changed"] = statistics.fmean(r["changed"] for r in runs) if learnt else None
        row["outside support"] = (
            statistics.fmean(r["outside"] or 0.0 for r in runs) if learnt else None
        )
        rows.append(row)
    return rows


def labels_table(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row per estimator: its model of the one labels against that of the other."""
    names = [n for n in _names(cells) if f"{n} (other labels)" in cells[0]["runs"]]
    return [
        {
            "estimator": name,
            "communication": statistics.fmean(c["runs"][name]["communication"] for c in cells),
            "with other labels": statistics.fmean(
                c["runs"][f"{name} (other labels)"]["communication"] for c in cells
            ),
            "difference, %": difference(cells, name, f"{name} (other labels)"),
            "replaces": statistics.fmean(c["runs"][name]["replace_share"] for c in cells),
            "replaces, other labels": statistics.fmean(
                c["runs"][f"{name} (other labels)"]["replace_share"] for c in cells
            ),
        }
        for name in names
    ]


def _names(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(cells[0]["runs"])


def difference(cells: Sequence[Mapping[str, Any]], name: str, other: str | None) -> str:
    """Rows fetched more (+) or less (-) than another, in percent: mean and 95 % interval.

    Seeds are the sample: each one's value is the mean over its scenarios. ``None`` = the rule that
    is best in that scenario on average over seeds.
    """
    best: dict[str, str] = {}
    if other is None:
        for scenario in {cell["cell"]["scenario"] for cell in cells}:
            of = [c["runs"] for c in cells if c["cell"]["scenario"] == scenario]
            best[scenario] = min(RULES, key=lambda rule, of=of: sum(r[rule]["fetched"] for r in of))
    by_seed: dict[int, list[float]] = {}
    for cell in cells:
        reference = cell["runs"][other or best[cell["cell"]["scenario"]]]["fetched"]
        change = 100 * (cell["runs"][name]["fetched"] / reference - 1)
        by_seed.setdefault(cell["cell"]["fields"]["seed"], []).append(change)
    values = [statistics.fmean(v) for v in by_seed.values()]
    mean = statistics.fmean(values)
    if len(values) < 2 or len(set(values)) == 1:
        return f"{mean:+.1f}"
    low, high = stats.t.interval(0.95, len(values) - 1, mean, stats.sem(values))
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


def _work(home: Path, path: Path, cells: Sequence[Cell]) -> None:
    place = Home.resolve(home)

    def wanted(found: Found) -> Iterable[Cell]:
        return cells

    Cells(path).work(wanted, lambda cell: measure(place, cell))


def _models(folder: Path | None) -> tuple[str, ...]:
    if folder is None:
        return ()
    found = [folder.resolve() / name for name in ESTIMATORS]
    return tuple(str(path) for path in found if (path / "model.json").is_file())


def main() -> None:
    parser = traces.parser(__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--suite", default="train")
    parser.add_argument("--scenarios", nargs="+", default=[], metavar="PATTERN")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=100, help="no model may have seen it")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    place = traces.home(args.home)
    models, against = _models(args.models), _models(args.against)
    suite = find_suite(args.suite).select(args.scenarios)
    cells = [
        Cell(
            item.name,
            item.scenario.change(seed=seed).model_dump(mode="json", exclude_defaults=True)
            | {"seed": seed},
            models,
            against,
        )
        for seed in range(args.first_seed, args.first_seed + args.seeds)
        for item in suite
    ]
    path = place.root / "study-classifiers.jsonl"
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        for work in [pool.submit(_work, place.root, path, cells) for _ in range(args.jobs)]:
            work.result()
    found = Cells(path).found()
    measured = [found[key_of(cell)] for cell in cells]
    tables = {
        f"{suite.name}: {len(suite.scenarios)} scenarios, {args.seeds} seeds": table(measured),
        **{
            item.name: table([m for m in measured if m["cell"]["scenario"] == item.name])
            for item in (suite if len(suite.scenarios) > 1 else ())
        },
    }
    if against:
        tables["Labels"] = labels_table(measured)
    traces.show(tables, as_json=args.json)


if __name__ == "__main__":
    main()
