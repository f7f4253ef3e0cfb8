"""Runs the cells of a sweep on the real engine: one run after the other, interleaved.

Scenario by scenario, seed by seed, controller by controller, so that what changes on the machine
meanwhile meets all controllers alike. Hosts stay up between runs that need the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rudder.engine import Engine
from rudder.registries import ENGINES

from .cell_runs import CellRuns, Keeping, controls_of, quiet_controllers
from .cells import Cell
from .headroom import Bounds
from .places import Place
from .requests import Request, Watch
from .sweep import Planned, Sweep


def run_real(
    request: Request, sweep: Sweep, keeping: Keeping, places: Sequence[Place], watch: Watch
) -> int:
    """Run what of some places was asked for and has not ended; returns how many runs that were.

    Headroom is that of cells which have been replayed before.
    """
    known = {digest: cell for digest, cell in sweep.all_cells().items() if cell.finished}
    runs = CellRuns(keeping, sweep.begun(), watch.prepare)
    quiet_controllers()
    with ENGINES.build("distdgl") as engine:
        cells = _RealCells(engine, runs, known, watch)
        for place in places:
            bounds = place.known_bounds(known)
            for cell in place.contenders:
                line = cells.run(cell, bounds)
                if request.controls:
                    for control in controls_of(cell, line, keeping.home, ""):
                        cells.run(control, bounds)
    return cells.now


class _RealCells:
    """Runs one cell at a time.

    Attributes:
        now: how many were run.
    """

    def __init__(
        self, engine: Engine, runs: CellRuns, known: Mapping[str, Cell], watch: Watch
    ) -> None:
        self._engine, self._runs, self._known, self._watch = engine, runs, known, watch
        self.now = 0

    def run(self, cell: Planned, bounds: Bounds) -> Cell:
        if cell.cell in self._known:
            line = self._runs.keep_again(cell, self._known[cell.cell])
            self._watch.done(line, False)
            return line
        self._watch.begun(cell)
        line = self._runs.keep(self._runs.run(cell, self._engine), bounds)
        self.now += 1
        self._watch.done(line, True)
        return line
