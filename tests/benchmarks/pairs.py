"""What the run benchmarks share: interleaved blocks, ratios with spread, one report."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rudder.engine import Engine, RunOptions
from rudder.home import Home
from rudder.result import RunResult
from rudder.running import new_run_id
from rudder.scenario import Scenario
from rudder.spec import Spec


def parser(description: str, blocks: int) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--graph", default="debian")
    made.add_argument("--rate", type=float, default=100.0, help="Mbit/s; 0 = unshaped")
    made.add_argument("--blocks", type=int, default=blocks, help="interleaved repetitions")
    made.add_argument("--home", type=Path, default=None)
    made.add_argument("--json", action="store_true")
    return made


def home(given: Path | None) -> Home:
    return Home.resolve(given or Path(tempfile.mkdtemp(prefix="rudder-bench-")))


def run(engine: Engine, place: Home, controller: str, **fields: object) -> RunResult:
    """One run, untracked."""
    options = RunOptions(place, place.runs / new_run_id())
    return engine.run(Scenario.make(**fields), Spec.parse(controller), options)


def interleave(
    blocks: int, cases: Mapping[str, Callable[[int], Mapping[str, float]]]
) -> dict[str, dict[str, list[float]]]:
    """Every case once per block, in turn, given the block's number; values by case and key."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in cases}
    for block in range(blocks):
        for name, case in cases.items():
            values = case(block)
            print(f"block {block + 1}/{blocks} {name}: {dict(values)}", file=sys.stderr, flush=True)
            for key, value in values.items():
                found[name].setdefault(key, []).append(value)
    return found


def ratios(values: Sequence[float], base: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest of the ratios within the blocks, and ratio of the medians."""
    paired = [a / b for a, b in zip(values, base, strict=True)]
    return {
        "ratio_of_medians": statistics.median(values) / statistics.median(base),
        "median": statistics.median(paired),
        "min": min(paired),
        "max": max(paired),
    }


def emit(report: object) -> None:
    print(json.dumps(report, indent=2))
