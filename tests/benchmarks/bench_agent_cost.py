"""Training time that an agent costs by using the CPU, against its own schedule without it.

    python -I tests/benchmarks/bench_agent_cost.py [--controller smollm2-135m] [--blocks 3] \
        [--epochs 5] [--rate 100] [--graph debian]

In each block the agent steers a real run; then the same scenario is trained again with replacements
at the same minibatches of each trainer, which are looked up in the first run's decisions and cost
nothing. Both sample the same minibatches; what differs is that a model ran beside training.
Prints a Markdown table: medians over the blocks, in brackets the least and greatest; ratios within
blocks.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

import pairs

from rudder.engine import Engine, RunOptions
from rudder.home import Home
from rudder.plugins import load_file
from rudder.registries import ENGINES
from rudder.result import RunResult
from rudder.running import new_run_id
from rudder.scenario import Scenario
from rudder.spec import Spec

KEYS = ("epoch_seconds", "bytes_fetched", "replaced", "decisions", "waited_s", "test_metric")


def replacements(result: RunResult) -> set[tuple[int, int]]:
    """Rank and minibatch of every answer that said replace."""
    return {
        (line["rank"], line["applied_at"])
        for line in result.decisions
        if line["applied_at"] is not None and line["decision"]["replace"]
    }


class Bench:
    """Runs an agent, and then what it decided."""

    def __init__(self, engine: Engine, place: Home, scenario: dict[str, object]) -> None:
        self._engine, self._place, self._scenario = engine, place, scenario
        self._plugin = load_file(Path(__file__).with_name("schedule.py"))
        self._agent: RunResult | None = None

    def agent(self, controller: str, block: int) -> dict[str, float]:
        self._agent = self._run(Spec.parse(controller), block)
        if not self._agent.summary["decisions"]:
            raise RuntimeError("the agent answered nothing before the run ended; more --epochs")
        return self._values(self._agent)

    def schedule(self, block: int) -> dict[str, float]:
        agent = self._agent
        if agent is None or agent.run_dir is None:
            raise RuntimeError("the agent's run comes first")
        found = self._run(Spec("schedule", {"run": str(agent.run_dir)}), block)
        if replacements(found) != replacements(agent):
            raise RuntimeError(f"{found.run_dir} did not follow the schedule of {agent.run_dir}")
        return self._values(found)

    def _run(self, controller: Spec, block: int) -> RunResult:
        run_dir = self._place.runs / new_run_id()
        options = RunOptions(self._place, run_dir, plugins=[self._plugin])
        return self._engine.run(
            Scenario.make(**{**self._scenario, "seed": block}), controller, options
        )

    @staticmethod
    def _values(result: RunResult) -> dict[str, float]:
        waited = sum(line["waited_s"] for line in result.decisions)
        found = {**result.summary, "waited_s": waited}
        return {key: found[key] for key in KEYS}


def main() -> None:
    parser = pairs.parser(__doc__.splitlines()[0], blocks=3)
    parser.add_argument("--controller", default="smollm2-135m")
    parser.add_argument("--epochs", type=int, default=5, help="the first one is not timed")
    parser.add_argument("--parts", type=int, default=4)
    args = parser.parse_args()
    place, engine = pairs.home(args.home), ENGINES.build("distdgl")
    scenario = {
        "graph": args.graph, "rate": args.rate, "epochs": args.epochs, "parts": args.parts,
    }  # fmt: skip
    before = os.getloadavg()[0]
    with engine:
        bench = Bench(engine, place, scenario)
        cases = {
            args.controller: partial(bench.agent, args.controller),
            "its schedule": bench.schedule,
        }
        found = pairs.interleave(args.blocks, cases)
    agent, schedule = found.values()
    lost = pairs.ratios(agent["epoch_seconds"], schedule["epoch_seconds"])
    if args.json:
        told = {**vars(args), "home": str(place.root), "load_before": before}
        pairs.emit({**told, "values": found, "epoch_seconds_ratio": lost})
        return
    print(
        f"{args.graph}, {args.parts} hosts, {args.rate:g} Mbit/s, {args.epochs} epochs, "
        f"{args.blocks} blocks; {os.cpu_count()} CPUs, load average before {before:.1f}\n"
    )
    print("| run | epoch s | MB fetched | rows replaced | answers | waited s | test accuracy |")
    print("|---|---|---|---|---|---|---|")
    for name, values in found.items():
        cells = [
            spread(values["epoch_seconds"], 2),
            f"{statistics.median(values['bytes_fetched']) / 1e6:.0f}",
            f"{statistics.median(values['replaced']):,.0f}",
            f"{statistics.median(values['decisions']):.0f}",
            spread(values["waited_s"], 2), spread(values["test_metric"], 3),
        ]  # fmt: skip
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(
        f"\nThe agent's run takes {lost['median']:.3f} [{lost['min']:.3f}, {lost['max']:.3f}] of "
        "the time of its schedule."
    )


def spread(values: Sequence[float], digits: int) -> str:
    middle = statistics.median(values)
    return f"{middle:.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


if __name__ == "__main__":
    main()
