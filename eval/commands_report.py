"""``rudder report``: a sweep as a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, Quiet, Verbose
from rudder.cli.output import emit, say
from rudder.home import Home

if TYPE_CHECKING:
    from .report.study import Study


def report(
    sweep: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="[SUITE|SWEEP]",
            help="name or folder of a sweep, or a suite: its newest one",
            show_default="the newest sweep",
        ),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="DIR", help="where the report goes", show_default="report/ of the sweep"
        ),
    ] = None,
    track: Annotated[
        bool, typer.Option(help="put the report and its figures onto the sweep's run in MLflow")
    ] = True,
    home: HomeDir = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Write a sweep's report: one HTML page, the same as Markdown, and its numbers as JSON.

    A sweep that MLflow knows gets them too, on its own run.
    """
    from .report.numbers import count
    from .report.source import find_study
    from .report.tracked import report_files, robustness
    from .report.write import write_report
    from .tracking import add_to_parent

    place = Home.resolve(home)
    study, folder = find_study(place, sweep)
    into = out.expanduser().resolve() if out is not None else folder / "report"
    files = write_report(study, into, place.root)
    sent = None
    if track:
        sent = add_to_parent(
            place, folder, metrics=robustness(study), files=report_files(files),
            tags={"report": "report/report.html"},
        )  # fmt: skip
    run_id = None if sent is None else sent.run_id
    if as_json:
        emit({**study.to_dict(), "files": files, "mlflow_run_id": run_id}, as_json=True)
        return
    idle = [fact.name for fact in study.facts if not fact.decides]
    if study.ranking.standings:
        emit(_leaderboard(study), as_json=False, title=f"{study.name}: by rows fetched")
    else:
        say(f"{study.name}: no ranking")
    if study.missing:
        say(
            f"{count(study.missing, 'cell')} of this sweep not run yet: this is a part of it; "
            "'rudder evaluate' goes on with it"
        )
    if idle:
        say(f"nothing to decide in {len(idle)} of {len(study.facts)} scenarios: {', '.join(idle)}")
    if study.failures:
        say(f"{len(study.failures)} of {len(study.cells)} cells failed")
    emit(files, as_json=False)
    if run_id is not None:
        say(f"the report and its figures are on the run {run_id} in MLflow: 'rudder ui'")


def _leaderboard(study: Study) -> list[dict[str, Any]]:
    return [
        {
            "controller": one.controller,
            "place": f"{one.best} to {one.worst}" if one.best != one.worst else str(one.best),
            "not told apart": one.letters,
            "communication": one.mean.mean,
            "low": one.mean.low,
            "high": one.mean.high,
            "runs": one.runs,
        }
        for one in study.ranking.standings
    ]
