"""Runs single cells: what is run, what its summary gets beside it, and how it is kept.

A cell has ended when its line is written. Before that come, in this order: a note which run stands
for it, the run itself, its summary, MLflow. Whoever goes on after a kill takes up a run that had
ended, and says to MLflow what it may have been told before, which changes nothing there.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rudder.engine import Engine, Progress, RunOptions
from rudder.errors import ResultError
from rudder.home import Home
from rudder.plugins import PluginFile
from rudder.result import RunResult
from rudder.running import new_run_id
from rudder.spec import Spec
from rudder.steering.resolve import TIMING
from rudder.tracking import Tracker

from .cells import Cell, append_cell, control_name
from .contenders import LEARNED
from .costs import Costs
from .headroom import Bounds
from .robustness.metrics import ORACLE_REGRET, REGRET, no_buffer
from .sweep import CELLS, CONTROL_OF, Planned, cell_digest, note_begun
from .tracking import log_cell

_STAMP = "sweep"
"""Key of a run's details: when it began and ended."""


@dataclass(frozen=True)
class Ended:
    """A run that has ended, before its cell has.

    Attributes:
        cell: which it stands for.
        run_id: of the run.
        run_dir: of it.
        times_ms: when it began and ended.
        result: None = it failed.
        error: one line, and the whole traceback.
    """

    cell: Planned
    run_id: str
    run_dir: Path
    times_ms: tuple[int, int]
    result: RunResult | None = None
    error: tuple[str, str] | None = None

    @property
    def fetched(self) -> int | None:
        return None if self.result is None else self.result.summary.get("fetched")


@dataclass(frozen=True)
class Keeping:
    """Where cells go.

    Attributes:
        home: data directory.
        folder: of the sweep.
        plugins: for engines.
        uri: tracking store; None = the default one.
        parent: local id of the sweep's run in MLflow; None = nothing is tracked.
        costs: of an answer, by name of the controller.
    """

    home: Home
    folder: Path
    plugins: tuple[PluginFile, ...] = ()
    uri: str | None = None
    parent: str | None = None
    costs: Mapping[str, Costs] = field(default_factory=dict)

    def tracker(self) -> Tracker | None:
        return None if self.parent is None else Tracker(self.home, self.uri)


class CellRuns:
    """Runs cells and keeps them.

    Args:
        keeping: where they go.
        begun: ids of runs that were begun earlier, by cell, the newest first.
        progress: told about each run's progress.
    """

    def __init__(
        self,
        keeping: Keeping,
        begun: Mapping[str, Sequence[str]],
        progress: Progress = lambda phase, share: None,
    ) -> None:
        self.keeping, self._begun, self._progress = keeping, begun, progress
        self._tracker = keeping.tracker()

    def run(self, cell: Planned, engine: Engine) -> Ended:
        """The run of a cell: one that had ended before, or a new one; what it raises is kept."""
        for run_id in self._begun.get(cell.cell, ()):
            found = self._taken_up(cell, run_id)
            if found is not None:
                return found
        run_id = new_run_id()
        run_dir = self.keeping.home.runs / run_id
        note_begun(self.keeping.folder, cell.cell, run_id)
        start = _now_ms()
        options = RunOptions(self.keeping.home, run_dir, self.keeping.plugins, self._progress)
        try:
            result = engine.run(cell.run, cell.spec, options)
        except Exception as error:  # noqa: BLE001 - a controller may raise anything; it fails its cell
            told = "".join(traceback.format_exception(error))
            return failed(cell, run_id, run_dir, (start, _now_ms()), one_line(error), told)
        return self._checked(Ended(cell, run_id, run_dir, (start, _now_ms()), result))

    def _taken_up(self, cell: Planned, run_id: str) -> Ended | None:
        run_dir = self.keeping.home.runs / run_id
        try:
            result = RunResult.load(run_dir)
            times = result.details.get(_STAMP) or [int(_written_ms(run_dir))] * 2
        except (ResultError, OSError):
            return None
        ended = self._checked(Ended(cell, run_id, run_dir, (times[0], times[1]), result))
        return None if ended.result is None else ended  # what failed is tried again

    def _checked(self, ended: Ended) -> Ended:
        """A controller that did nothing but crash was not measured, though training went on."""
        result = ended.result
        steering = {} if result is None else result.details.get("steering", {})
        asked, errors = steering.get("asked") or 0, steering.get("errors") or 0
        if not asked or errors < asked:
            return ended
        reason = f"ControllerError: every answer of {asked} was an error{_first(result)}"
        return replace(ended, result=None, error=(reason, reason))

    def keep(self, ended: Ended, bounds: Bounds) -> Cell:
        """End a cell: its summary, MLflow, its line."""
        cell, result = ended.cell, ended.result
        if result is not None:
            result = replace(
                result,
                summary={**result.summary, **self._beside(ended, bounds)},
                details={**result.details, _STAMP: list(ended.times_ms)},
            )
            result.save(ended.run_dir)
        mlflow_run_id = self._tracked(ended, result)
        begun, end = ended.times_ms
        line = Cell(
            cell=cell.cell, scenario=cell.scenario, split=cell.split, axis=cell.axis,
            controller=cell.controller, family=cell.family, seed=cell.seed, engine=cell.engine,
            status="failed" if result is None else "finished", run_id=ended.run_id,
            run_dir=self._relative(ended.run_dir), mlflow_run_id=mlflow_run_id,
            error=None if ended.error is None else ended.error[0],
            summary={} if result is None else result.summary,
            seconds=(end - begun) / 1000, spec=cell.spec.to_dict(),
        )  # fmt: skip
        append_cell(self.keeping.folder / CELLS, line)
        return line

    def keep_again(self, cell: Planned, found: Cell) -> Cell:
        """A cell that has ended, under the name that it goes by now; tracked if it was not."""
        line = replace(
            found, scenario=cell.scenario, split=cell.split, axis=cell.axis,
            controller=cell.controller, family=cell.family,
        )  # fmt: skip
        if line.finished and cell.tracked and self._tracker and not line.mlflow_run_id:
            run_dir = self.keeping.home.root / line.run_dir
            try:
                result = RunResult.load(run_dir)
            except ResultError:
                return line  # the run was removed; its figures are in the line
            begun, end = result.details.get(_STAMP, (0, 0))
            ended = Ended(cell, line.run_id, run_dir, (begun, end), result)
            line = replace(line, mlflow_run_id=self._tracked(ended, result))
        if line != found:
            append_cell(self.keeping.folder / CELLS, line)
        return line

    def _tracked(self, ended: Ended, result: RunResult | None) -> str | None:
        parent = self.keeping.parent
        if self._tracker is None or parent is None or not ended.cell.tracked:
            return None
        return log_cell(
            self._tracker, ended.cell, self.keeping.folder.name, parent, ended.run_id,
            times_ms=ended.times_ms, result=result,
            error=None if ended.error is None else ended.error[1],
            logs=ended.run_dir / "logs",
        )  # fmt: skip

    def _beside(self, ended: Ended, bounds: Bounds) -> dict[str, Any]:
        """What the summary gets: what the steering tallied, bounds, and of a control its cell."""
        result = ended.result
        assert result is not None
        steering = result.details.get("steering", {})
        found = {key: value for key, value in steering.items() if key not in result.summary}
        if ended.cell.engine == "replay":
            found["latency_s"] = result.details.get("latency_s")
            found |= bounds.beside(result.summary.get("fetched"))
        else:
            found |= bounds.told()
        if no_buffer(result.summary):  # what is fetched is all that could be: no regret
            found |= {REGRET.key: None, ORACLE_REGRET.key: None}
        costs = self.keeping.costs.get(ended.cell.controller, Costs())
        found |= {"memory_mb": costs.memory_mb, "answer_s": costs.answer_s}
        if ended.cell.of:
            found[CONTROL_OF] = ended.cell.of
        return found

    def _relative(self, run_dir: Path) -> str:
        root = self.keeping.home.root
        return str(run_dir.relative_to(root) if run_dir.is_relative_to(root) else run_dir)


def controls_of(cell: Planned, line: Cell, home: Home, trace_id: str) -> list[Planned]:
    """The controls of a finished cell: none for a controller that is neither learned nor an agent,
    nor for one that gave no answer."""
    share = line.value("replace_share")
    if cell.family not in LEARNED or not line.finished or share is None:
        return []
    timing = {name: cell.spec.params[name] for name in TIMING if name in cell.spec.params}
    run_dir = str(home.root / line.run_dir)
    specs = {
        "rate": Spec("random", {"p": share, **timing}),
        "shuffled": Spec("shuffled", {"run": run_dir, **timing}),
    }
    return [
        replace(
            cell,
            # By the cell, not by the place of its run: a data directory may be moved.
            # The clock is in the cell's own digest.
            cell=cell_digest(
                cell.run, Spec(f"control-{kind}"), cell.engine, trace_id, "", cell.cell
            ),
            controller=control_name(kind, cell.controller),
            family="control",
            spec=spec,
            of=cell.cell,
        )
        for kind, spec in specs.items()
    ]


def failed(
    cell: Planned, run_id: str, run_dir: Path, times_ms: tuple[int, int], line: str, told: str
) -> Ended:
    """A run that came to nothing."""
    return Ended(cell, run_id, run_dir, times_ms, None, (line, told))


def one_line(error: BaseException) -> str:
    """Class and message."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def quiet_controllers() -> None:
    """What a controller raises at each of thousands of questions is told once, by its cell."""
    logging.getLogger("rudder.controller").setLevel(logging.ERROR)


def _first(result: RunResult | None) -> str:
    for record in [] if result is None else result.decisions:
        decision = record.get("decision")
        if isinstance(decision, Mapping) and decision.get("explanation"):
            return f": {' '.join(str(decision['explanation']).split())[:300]}"
    return ""


def _written_ms(run_dir: Path) -> float:
    return (run_dir / "run.json").stat().st_mtime * 1000


def _now_ms() -> int:
    return int(time.time() * 1000)
