"""``rudder demo``: the story on the bundled graph, in minutes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, Quiet, Verbose, plugin_files
from rudder.cli.output import emit, progress, say
from rudder.cli.train import TrackingUri
from rudder.engine import Progress
from rudder.home import Home
from rudder.registries import ENGINES
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec

PLAIN = "plain DistDGL"
CONTROLLERS = ("static", "always", "fixed", "threshold")
COLUMNS = (
    "controller", "epoch_seconds", "epoch_time_vs_plain", "MB_fetched", "communication_vs_plain",
    "percent_hits", "test_metric",
)  # fmt: skip


def demo(
    graph: Annotated[str, typer.Option(help="dataset spec")] = "debian",
    rate: Annotated[float, typer.Option(help="Mbit/s each way at each host")] = 100.0,
    epochs: Annotated[int, typer.Option(help="epochs per run; the first is not timed")] = 3,
    tracking_uri: TrackingUri = None,
    home: HomeDir = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Train on a real graph over 4 emulated hosts: plain DistDGL, then four controllers.

    Each run is real DistDGL training over links of --rate; all are tracked in MLflow.
    """
    from rudder.running import run_tracked
    from rudder.tracking import Tracker

    place = Home.resolve(home)
    tracker = Tracker(place, tracking_uri)
    base = Scenario.make(graph=graph, rate=rate, epochs=epochs)
    cases = [(PLAIN, base.change(prefetch_depth=0), Spec("none"))]
    cases += [(name, base, Spec(name)) for name in CONTROLLERS]
    results: dict[str, RunResult] = {}
    with ENGINES.build("distdgl") as engine, progress(quiet=quiet or as_json) as report:
        for index, (name, scenario, controller) in enumerate(cases, start=1):
            results[name] = run_tracked(
                scenario, controller, place, tracker,
                _labelled(report, f"{index}/{len(cases)} {name}"),
                engine=engine, plugins=plugin_files(), tags={"rudder.demo": name},
            )  # fmt: skip
    rows = [_row(name, result, results[PLAIN]) for name, result in results.items()]
    title = f"{graph}: {base.parts} hosts, {rate:g} Mbit/s, buffer {base.buffer:.0%} of the halo"
    emit(rows, as_json=as_json, columns=COLUMNS, title=title)
    say(f"compare the runs in the MLflow UI: rudder ui --home {place.root}")


def _labelled(report: Progress, label: str) -> Callable[[str, float], None]:
    return lambda phase, share: report(f"{label}: {phase}", share)


def _row(name: str, result: RunResult, plain: RunResult) -> dict[str, Any]:
    summary, base = result.summary, plain.summary
    rate = summary["hit_rate"]
    return {
        "controller": name,
        "epoch_seconds": summary["epoch_seconds"],
        "epoch_time_vs_plain": _ratio(summary["epoch_seconds"], base["epoch_seconds"]),
        "MB_fetched": summary["bytes_fetched"] / 1e6,
        "communication_vs_plain": _ratio(summary["fetched"], base["fetched"]),
        "percent_hits": 100 * rate if rate is not None else None,
        "test_metric": summary["test_metric"],
        "run_id": summary["run_id"],
    }


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None
