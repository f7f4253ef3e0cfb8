"""Runs a sweep: controllers × scenarios × seeds, and goes on where it was ended."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

from rudder.errors import TrackingError
from rudder.home import Home
from rudder.plugins import PluginFile
from rudder.tracking import TrackedRun, Tracker

from .cell_runs import Keeping
from .cells import Cell
from .costs import measured
from .leaks import check_leaks
from .places import Place, Planner
from .real_runs import run_real
from .replaying import replay
from .requests import Request, Watch
from .sweep import SCRATCH, Sweep, alone
from .tracking import counts, open_parent, parent_files


@dataclass(frozen=True)
class Outcome:
    """What a sweep came to.

    Attributes:
        sweep: on disk.
        cells: all of the request, those run for headroom and the controls among them.
        run_now: how many of them were run now.
        parent: id of the sweep's run in MLflow.
    """

    sweep: Sweep
    cells: list[Cell]
    run_now: int
    parent: str | None


def evaluate(
    request: Request,
    home: Home,
    *,
    track: bool = True,
    tracking_uri: str | None = None,
    plugins: Sequence[PluginFile] = (),
    watch: Watch | None = None,
) -> Outcome:
    """Run what a request asks for and has not ended before.

    Raises:
        UsageError: wrong names or values, or a suite that asks for what a model has seen; told
            before anything is run.
        SweepError: another process works at this sweep.
        RudderError: a graph that cannot be read or cut. What a cell raises fails that cell alone.
    """
    watch = Watch() if watch is None else watch
    request.check()
    check_leaks(request.suite, request.contenders, request.seeds)
    tracker = Tracker(home, tracking_uri) if track else None
    if tracker is not None:
        _check_store(tracker)
    with alone(home, request.sweep):
        sweep = Sweep.begin(
            home, request.sweep, request.suite, request.engine, request.seeds,
            request.contenders, request.controls, request.machine,
        )  # fmt: skip
        places = Planner(request, home, sweep.folder / SCRATCH, plugins, watch).places()
        # Not before: what comes to nothing leaves an earlier request as it was.
        sweep.save(cells=[cell.cell for place in places for cell in place.cells])
        keeping = Keeping(home, sweep.folder, tuple(plugins), tracking_uri)
        with nullcontext() if tracker is None else _parent(tracker, sweep) as tracked:
            if tracked is not None:
                keeping = replace(keeping, parent=tracked.local_id)
            now = _run(request, sweep, keeping, places, watch)
            found = sweep.cells()
            if tracked is not None:
                tracked.finish(metrics=counts(found), files=parent_files(sweep))
                sweep.save(mlflow={**sweep.head["mlflow"], "run_id": tracked.run_id})
        return Outcome(sweep, found, now, None if tracked is None else tracked.run_id)


def _check_store(tracker: Tracker) -> None:
    """Tell a URI that is none before anything is run; one that is away gets its runs later."""
    with suppress(TrackingError), tracker.store.session():
        pass


def _parent(tracker: Tracker, sweep: Sweep) -> TrackedRun:
    tracker.catch_up()
    return open_parent(tracker, sweep)


def _run(
    request: Request, sweep: Sweep, keeping: Keeping, places: Sequence[Place], watch: Watch
) -> int:
    """Run what a sweep lacks; returns how many cells that were. The caller holds its lock."""
    cells = [cell for place in places for cell in place.cells]
    known = {digest: cell for digest, cell in sweep.all_cells().items() if cell.finished}
    open_now = {cell.controller for cell in cells if cell.cell not in known}
    asked = [one for one in request.contenders if one.name in open_now]
    keeping = replace(keeping, costs=measured(sweep, asked, keeping.plugins, watch.prepare))
    watch.planned(cells, known)
    if request.engine == "replay":
        return replay(request, sweep, keeping, places, known, watch)
    for_headroom = [replace(place, contenders=[]) for place in places]
    now = replay(request, sweep, keeping, for_headroom, known, watch)
    return now + run_real(request, sweep, keeping, places, watch)
