"""``rudder collect``: runs under exploring schedules, for labels and classifiers."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import Annotated, Any, Literal, Optional

import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, Quiet, Verbose, plugin_files
from rudder.cli.output import emit, progress, say
from rudder.home import Home
from rudder.suite import find_suite

from .collect import JOBS, collect
from .collection import Collection
from .schedules import DEFAULT

SEEDS = 5
LEAST_SEEDS = 3
"""A test part, a validation part and something to learn from: each has seeds of its own."""


def collect_command(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="name of a suite, or a TOML file of one")
    ],
    seeds: Annotated[int, typer.Option(min=1, help="seeds of each scenario: 0, 1, 2, …")] = SEEDS,
    schedules: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--schedules",
            "--schedule",
            metavar="SPEC",
            help=f"controller to explore under; may be given several times; default: "
            f"{' '.join(DEFAULT)}",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        Literal["replay", "distdgl"],
        typer.Option(
            help="replays of sampled traces, or real runs under the first schedule, whose traces "
            "are replayed under the others"
        ),
    ] = "replay",
    scenarios: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--scenarios",
            metavar="PATTERN",
            help="only scenarios of this name (* and ?); may be given several times",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str, typer.Option(help="of the collection; default: the suite's", show_default=False)
    ] = "",
    jobs: Annotated[int, typer.Option(min=1, help="replays at a time")] = JOBS,
    home: HomeDir = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run the scenarios of SUITE under exploring schedules and keep every decision.

    The collection lies in collections/ of the data directory. Asked again, it goes on where it
    was ended; a finished run is never made twice.
    """
    place = Home.resolve(home)
    chosen = find_suite(suite).select(scenarios or ())
    start = time.monotonic()
    with progress(quiet=quiet or as_json) as report:
        outcome = collect(
            chosen, place, seeds=range(seeds), schedules=schedules or DEFAULT, engine=engine,
            name=name, jobs=jobs, plugins=plugin_files(), progress=report,
        )  # fmt: skip
    collection = outcome.collection
    facts = {
        "collection": collection.folder,
        "name": collection.name,
        "suite": collection.request.suite,
        "suite_digest": collection.request.suite_digest,
        "engine": engine,
        "seeds": list(collection.request.seeds),
        "schedules": list(collection.request.schedules),
        "runs": len(collection.runs),
        "runs_made_now": outcome.made,
        "traces": len({run.trace_id for run in collection.runs}),
        "traces_made_now": outcome.traces,
        "seconds": time.monotonic() - start,
    }
    scenarios_found = by_scenario(collection)
    if as_json:
        emit({**facts, "scenarios": scenarios_found}, as_json=True)
    else:
        emit(facts, as_json=False)
        emit(scenarios_found, as_json=False, title="Rows fetched, means over seeds")
    if seeds < LEAST_SEEDS:
        say(f"labels need {LEAST_SEEDS} seeds or more: collect again under another --name")
    say(f"label it: rudder label {collection.name}")


def by_scenario(collection: Collection) -> list[dict[str, Any]]:
    """What the schedules came to, scenario by scenario.

    ``spread`` is what the worst schedule fetched above the best one: where it is 0, there is
    nothing to decide.
    """
    rows: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    asked: dict[str, int] = defaultdict(int)
    splits = {run.scenario: run.split for run in collection.runs}
    for run in collection.runs:
        summary = json.loads((collection.run_dir(run) / "run.json").read_text())["summary"]
        rows[run.scenario][run.schedule].append(summary["fetched"])
        asked[run.scenario] += summary["decisions"]
    found = []
    for scenario, of_schedule in rows.items():
        means = {name: sum(values) / len(values) for name, values in of_schedule.items()}
        best = min(means, key=lambda name: means[name])
        found.append(
            {
                "name": scenario,
                "split": splits[scenario],
                "decisions": asked[scenario],
                "best": best,
                "fetched": means[best],
                "spread": max(means.values()) / means[best] - 1 if means[best] else None,
            }
        )
    return found
