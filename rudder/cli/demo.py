"""``rudder demo``: the whole story on the bundled graph, in minutes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, Quiet, Verbose, plugin_files
from rudder.cli.output import emit, progress, say
from rudder.cli.train import TrackingUri
from rudder.engine import Progress
from rudder.home import Home
from rudder.registries import COMMANDS, CONTROLLERS, ENGINES
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec

PLAIN = "plain DistDGL"
RULES = ("static", "always", "threshold")
CLASSIFIER = "xgboost"
AGENT = "smollm2-135m"
SWEEP = "demo"
SUITE = "quick"
SCENARIOS = ("held-coarse", "batch-size", "parts", "drift")
"""Of the suite: one of id_val, three out of distribution."""
ANSWER_S = 0.4
"""What the agent takes for an answer, in the replays' modelled clock."""
SEEDS = 2
COLUMNS = (
    "controller", "epoch_seconds", "epoch_time_vs_plain", "MB_fetched", "communication_vs_plain",
    "percent_hits", "decisions", "valid_share", "test_metric",
)  # fmt: skip


def demo(
    graph: Annotated[str, typer.Option(help="dataset spec, for the real runs")] = "debian",
    rate: Annotated[float, typer.Option(help="Mbit/s each way at each host")] = 100.0,
    epochs: Annotated[int, typer.Option(help="epochs per run; the first is not timed")] = 3,
    tracking_uri: TrackingUri = None,
    home: HomeDir = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Train on a real graph over 4 emulated hosts, then ask who holds up out of distribution.

    1. Real DistDGL training over links of --rate: plain, three rules, a classifier, a language
       model. 2. The same controllers in four scenarios of the suite quick, replayed, in
       distribution and out of it. 3. A report. All of it is tracked in MLflow. Asked again, the
       sweep is not run again.
    """
    place = Home.resolve(home)
    left_out = {name: why for name in (CLASSIFIER, AGENT) if (why := unavailable(name))}
    learned = [name for name in (CLASSIFIER, AGENT) if name not in left_out]
    base = Scenario.make(graph=graph, rate=rate, epochs=epochs)
    shown = quiet or as_json
    for name, why in left_out.items():
        say(f"{name} is left out: {why}")

    say("1 of 3: real training on emulated hosts")
    rows = train(base, (*RULES, *learned), place, tracking_uri, quiet=shown)
    if not as_json:
        title = (
            f"{graph}: {base.parts} hosts, {rate:g} Mbit/s, buffer {base.buffer:.0%} of the halo"
        )
        emit(rows, as_json=False, columns=COLUMNS, title=title)
    say("2 of 3: in distribution and out of it, replayed")
    swept = call(
        "evaluate", as_json=as_json, suite=SUITE, controllers=contenders(learned), seeds=SEEDS,
        seeds_of=[f"{AGENT}=1"] if AGENT in learned else None, scenarios=list(SCENARIOS),
        controls=False, name=SWEEP, tracking_uri=tracking_uri, home=place.root, quiet=shown,
    )  # fmt: skip
    say("3 of 3: the report")
    reported = call("report", as_json=as_json, sweep=SWEEP, home=place.root, quiet=shown)
    if as_json:
        told = {"runs": rows, "left_out": left_out, "sweep": swept, "report": reported}
        emit(told, as_json=True)
    for name in left_out:
        say(f"left out, since it cannot run here: {name} ({left_out[name]})")
    say(f"compare the runs in the MLflow UI: rudder ui --home {place.root}")


def contenders(learned: Sequence[str]) -> list[str]:
    """Controllers of the sweep; an agent's answers take the time that they take in real runs."""
    named = [f"{AGENT}:latency_s={ANSWER_S}" if name == AGENT else name for name in learned]
    return ["none", *RULES, *named]


def unavailable(controller: str) -> str | None:
    """Why a controller cannot run on this machine; None if it can."""
    broken = [check for check in CONTROLLERS.build(controller).needs() if check.ok is False]
    told = (": ".join(filter(None, (one.name, one.found, one.advice))) for one in broken)
    return "; ".join(told) or None


def train(
    base: Scenario,
    controllers: Sequence[str],
    home: Home,
    tracking_uri: str | None,
    *,
    quiet: bool,
) -> list[dict[str, Any]]:
    """One real run each, plain DistDGL first; a row of the table each."""
    from rudder.running import run_tracked
    from rudder.tracking import Tracker

    tracker = Tracker(home, tracking_uri)
    cases = [(PLAIN, base.change(prefetch_depth=0), Spec("none"))]
    cases += [(name, base, Spec(name)) for name in controllers]
    results: dict[str, RunResult] = {}
    with ENGINES.build("distdgl") as engine, progress(quiet=quiet) as report:
        for index, (name, scenario, controller) in enumerate(cases, start=1):
            results[name] = run_tracked(
                scenario, controller, home, tracker,
                _labelled(report, f"{index}/{len(cases)} {name}"),
                engine=engine, plugins=plugin_files(), tags={"rudder.demo": name},
            )  # fmt: skip
    return [_row(name, result, results[PLAIN]) for name, result in results.items()]


def call(command: str, *, as_json: bool, **arguments: Any) -> Any:
    """Another command, as if it had been typed; with JSON, what it would have printed."""
    target = COMMANDS.target(command)
    if not as_json:
        target(**arguments)
        return None
    with redirect_stdout(io.StringIO()) as printed:
        target(**arguments, as_json=True)
    return json.loads(printed.getvalue())


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
        "decisions": summary["decisions"],
        "valid_share": summary["valid_share"],
        "test_metric": summary["test_metric"],
        "run_id": summary["run_id"],
    }


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None
