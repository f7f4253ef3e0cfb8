"""``rudder replay``: a recorded trace under a controller, with what could have been."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, Quiet, Verbose, plugin_files
from rudder.cli.output import emit, progress, say
from rudder.cli.scenario_options import scenario_options
from rudder.cli.train import Controller, TrackingUri, describe
from rudder.home import Home
from rudder.replay.engine import FREE, MakeTime, ReplayEngine, recorded_time
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.timing import Machine, calibrated_time
from rudder.trace.find import find_trace

Oracle = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--oracle",
        metavar="SPEC",
        help="replay under this controller too, such as timing-oracle, and tell the regret to it",
        show_default=False,
    ),
]


@scenario_options(graph=False, omit=set(Scenario.model_fields) - set(FREE))
def replay(
    scenario: dict[str, Any],
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="directory of a trace, or the name of one")
    ],
    controller: Controller = "always",
    oracle: Oracle = None,
    time: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--time",
            metavar="FILE",
            help="calibrated model of time (rudder calibrate-time); default: recorded seconds",
            show_default=False,
        ),
    ] = None,
    measure_latency: Annotated[
        bool,
        typer.Option(
            "--measure-latency",
            help="answers take as long as they really take; else the controller's latency_s, or 0",
        ),
    ] = False,
    decisions: Annotated[
        bool, typer.Option(help="write every decision; a long replay is faster without")
    ] = True,
    track: Annotated[bool, typer.Option(help="log the run to MLflow")] = False,
    tracking_uri: TrackingUri = None,
    home: HomeDir = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Replay a recorded trace through the buffer: exact counts, modelled seconds, and bounds.

    Options that are not given are as recorded; only a run that was recorded without a buffer is
    replayed with the default one. min_fetched is Belady's MIN from the same fill, regret the rows
    fetched against it.
    """
    from rudder.running import run_tracked
    from rudder.tracking import Tracker

    place = Home.resolve(home)
    engine = ReplayEngine(
        find_trace(trace, place),
        make_time=_time_model(time),
        measure_latency=measure_latency,
        record_decisions=decisions,
        oracle=None if oracle is None else Spec.parse(oracle),
    )
    asked = engine.scenario.change(**scenario)
    if "buffer" not in scenario and not asked.buffer:
        # As 'rudder trace' records under its default controller, which fetches everything.
        asked = asked.change(buffer=Scenario.model_fields["buffer"].default)
        say(f"recorded without a buffer; replayed with --buffer {asked.buffer}")
    tracker = Tracker(place, tracking_uri) if track else None
    with progress(quiet=quiet or as_json) as report:
        result = run_tracked(
            asked, Spec.parse(controller), place, tracker, report, engine=engine,
            plugins=plugin_files(),
        )  # fmt: skip
    emit({"trace": str(engine.trace.folder), **describe(result)}, as_json=as_json)
    say(f"run directory: {result.run_dir}")


def _time_model(calibration: Path | None) -> MakeTime:
    if calibration is None:
        return recorded_time
    return calibrated_time(Machine.load(calibration.expanduser().resolve()))
