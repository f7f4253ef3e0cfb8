"""Replays the cells of a sweep, trace by trace.

All cells of a trace one after another in one process, so that controllers are paired on identical
accesses and a language model is loaded once; several traces at a time.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rudder.engine import Engine
from rudder.errors import WorkerError
from rudder.parallel import Tell, exit_words, stream
from rudder.replay.engine import ReplayEngine
from rudder.replay.loaded import Loaded
from rudder.running import new_run_id
from rudder.timing import Machine, calibrated_time
from rudder.trace import Trace

from .cell_runs import CellRuns, Ended, Keeping, controls_of, failed, quiet_controllers
from .cells import Cell
from .headroom import Bounds
from .places import Place
from .requests import Request, Watch
from .sweep import CONTROL_OF, Planned, Sweep


def replay(
    request: Request,
    sweep: Sweep,
    keeping: Keeping,
    places: Sequence[Place],
    known: Mapping[str, Cell],
    watch: Watch,
) -> int:
    """Replay all cells of some places that have not ended; returns how many that were.

    Args:
        places: those of one trace need not stand together.
        known: cells that have ended, by digest.

    Raises:
        WorkerError: a process died twice at the same cell, or between two cells.
    """
    now = 0
    running: dict[Path, Planned] = {}
    ended: dict[Path, dict[str, Cell]] = defaultdict(dict)

    def heard(group: _Group, event: Planned | tuple[Cell, bool]) -> None:
        nonlocal now
        if isinstance(event, Planned):
            running[group.trace] = event
            watch.begun(event)
            return
        cell, is_new = event
        ended[group.trace][cell.cell] = cell
        running.pop(group.trace, None)
        now += is_new
        watch.done(cell, is_new)

    def lost(group: _Group, code: int | None) -> _Group:
        """The process died: the cell that it was at has failed, the others go on."""
        at = running.pop(group.trace, None)
        if at is None or at.cell in group.given_up:
            raise WorkerError(
                f"a process died ({exit_words(code)}) between two cells, perhaps for want of "
                "memory. What is finished stays: run the same command again, with --jobs 1 "
                "if memory is short"
            )
        why = f"WorkerError: the process that ran it died ({exit_words(code)})"
        return replace(
            group,
            known={**group.known, **ended[group.trace]},
            begun=sweep.begun(),
            given_up={**group.given_up, at.cell: why},
        )

    groups = _groups(request, sweep, keeping, places, known)
    stream(_replay, groups, request.jobs, keeping.plugins, heard, lost)
    return now


@dataclass(frozen=True)
class _Group:
    """All cells of one trace: the task of one process.

    Attributes:
        known: cells that have ended, by digest.
        begun: ids of the runs that were begun for the others.
        given_up: cells that killed the process which ran them, and how.
    """

    trace: Path
    places: tuple[Place, ...]
    keeping: Keeping
    known: Mapping[str, Cell]
    begun: Mapping[str, Sequence[str]]
    controls: bool
    machine: Machine
    given_up: Mapping[str, str] = field(default_factory=dict)


def _groups(
    request: Request,
    sweep: Sweep,
    keeping: Keeping,
    places: Sequence[Place],
    known: Mapping[str, Cell],
) -> list[_Group]:
    by_trace: dict[Path, list[Place]] = defaultdict(list)
    for place in places:
        by_trace[place.trace].append(place)
    begun = {cell: ids for cell, ids in sweep.begun().items() if cell not in known}
    return [
        _Group(
            trace, tuple(of_trace), keeping, _known(of_trace, known), begun, request.controls,
            request.machine,
        )
        for trace, of_trace in by_trace.items()
    ]  # fmt: skip


def _known(places: Sequence[Place], known: Mapping[str, Cell]) -> dict[str, Cell]:
    """What of all cells that have ended belongs to some places, controls among it."""
    own = {cell.cell for place in places for cell in place.cells}
    return {
        digest: cell
        for digest, cell in known.items()
        if digest in own or cell.summary.get(CONTROL_OF) in own
    }


_loaded = Loaded()
"""Of this process: a language model stays from trace to trace."""


def _replay(group: _Group, tell: Tell) -> None:
    """All cells of a trace."""
    quiet_controllers()
    os.dup2(2, 1)  # what a controller prints is no report: the command's --json is all of stdout
    _Replays(group, tell).go()


class _Replays:
    """The cells of one group, in this process."""

    def __init__(self, group: _Group, tell: Tell) -> None:
        self.group, self.tell = group, tell
        self.runs = CellRuns(group.keeping, group.begun)
        trace, make_time = Trace.open(group.trace), calibrated_time(group.machine)
        self.trace_id = trace.manifest.trace_id
        self.engine = ReplayEngine(trace, make_time=make_time, loaded=_loaded)
        self.silent = ReplayEngine(
            trace, make_time=make_time, record_decisions=False, loaded=_loaded
        )

    def go(self) -> None:
        bounds = [self._headroom(place) for place in self.group.places]
        for cell, of_place in self._contenders(bounds):
            line = self._cell(cell, of_place)
            if self.group.controls:
                for control in controls_of(cell, line, self.group.keeping.home, self.trace_id):
                    self._cell(control, of_place)

    def _contenders(self, bounds: Sequence[Bounds]) -> Iterator[tuple[Planned, Bounds]]:
        """Controller by controller, so that one that shares weights loads them once."""
        order: dict[str, list[tuple[Planned, Bounds]]] = defaultdict(list)
        for place, of_place in zip(self.group.places, bounds, strict=True):
            for cell in place.contenders:
                order[cell.controller].append((cell, of_place))
        for of_controller in order.values():
            yield from of_controller

    def _headroom(self, place: Place) -> Bounds:
        """Run the constant schedules and the oracle; their lines come once all are known."""
        ended: dict[str, Ended] = {}
        rows: dict[str, int | None] = {}
        for cell in place.constants:
            found = self.group.known.get(cell.cell)
            if found is None:
                self.tell(cell)
                engine = self.engine if cell.tracked else self.silent
                ended[cell.cell] = self._run(cell, engine)
                rows[cell.cell] = ended[cell.cell].fetched
            else:
                rows[cell.cell] = found.summary.get("fetched")
        bounds = place.bounds(rows)
        for cell in place.constants:
            if cell.cell in ended:
                self.tell((self.runs.keep(ended[cell.cell], bounds), True))
            else:
                line = self.runs.keep_again(cell, self.group.known[cell.cell])
                self.tell((line, False))
        return bounds

    def _cell(self, cell: Planned, bounds: Bounds) -> Cell:
        found = self.group.known.get(cell.cell)
        if found is not None:
            line = self.runs.keep_again(cell, found)
            self.tell((line, False))
            return line
        self.tell(cell)
        line = self.runs.keep(self._run(cell, self.engine), bounds)
        self.tell((line, True))
        return line

    def _run(self, cell: Planned, engine: Engine) -> Ended:
        if cell.cell in self.group.given_up:
            run_id = new_run_id()
            reason = self.group.given_up[cell.cell]
            run_dir = self.group.keeping.home.runs / run_id
            now = int(time.time() * 1000)
            return failed(cell, run_id, run_dir, (now, now), reason, reason)
        return self.runs.run(cell, engine)
