"""How a sweep goes, live: cells done, the cell at work, failures, time left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.markup import escape

from rudder.cli.output import console

from .cells import Cell
from .requests import Watch
from .sweep import Planned


class Remaining:
    """Estimates the time left from what cells of the same controller took.

    Args:
        jobs: cells that are run at a time.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._open: dict[str, str] = {}
        self._total: dict[str, float] = defaultdict(float)
        self._count: dict[str, int] = defaultdict(int)

    def plan(self, cells: Sequence[Planned], known: Mapping[str, Cell]) -> None:
        """All cells; those that have ended before tell how long such cells take."""
        for cell in cells:
            if cell.cell in known:
                self._learn(known[cell.cell])
            else:
                self._open[cell.cell] = cell.controller

    def end(self, cell: Cell, now: bool) -> None:
        """A cell has ended."""
        self._open.pop(cell.cell, None)
        if now:
            self._learn(cell)

    @property
    def seconds(self) -> float | None:
        """None while no cell has ended."""
        if not self._count:
            return None
        everywhere = sum(self._total.values()) / sum(self._count.values())
        return (
            sum(
                self._total[name] / self._count[name] if name in self._count else everywhere
                for name in self._open.values()
            )
            / self.jobs
        )

    def _learn(self, cell: Cell) -> None:
        if cell.seconds is not None:
            self._total[cell.controller] += cell.seconds
            self._count[cell.controller] += 1


@contextmanager
def board(jobs: int, *, quiet: bool = False) -> Iterator[Watch]:
    """A progress bar on stderr; silent where stderr is no terminal."""
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    err = console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(), TextColumn("{task.fields[note]}"), console=err,
        disable=quiet or not err.is_terminal,
    )  # fmt: skip
    phases: dict[str, TaskID] = {}
    remaining = Remaining(jobs)
    ended: dict[str, bool] = {}
    total = 0

    def prepare(phase: str, share: float) -> None:
        if phase not in phases:
            phases[phase] = bar.add_task(phase, total=1.0, note="")
        bar.update(phases[phase], completed=min(max(share, 0.0), 1.0))

    def planned(cells: Sequence[Planned], known: Mapping[str, Cell]) -> None:
        nonlocal total
        total = len(cells)
        remaining.plan(cells, known)
        phases["cells"] = bar.add_task("cells", total=total, note="")

    def begun(cell: Planned) -> None:
        show(str(cell))

    def done(cell: Cell, now: bool) -> None:
        nonlocal total
        if cell.family == "control" and cell.cell not in ended:
            total += 1  # planned by nobody: it follows from what its cell came to
        ended[cell.cell] = cell.finished
        remaining.end(cell, now)
        if not cell.finished and now:
            err.print(f"failed: {escape(_named(cell))}: {escape(str(cell.error))}")
        show("")

    def show(at: str) -> None:
        failures = sum(not finished for finished in ended.values())
        parts = [f"{len(ended)} of {total}", *([f"{failures} failed"] if failures else [])]
        if (left := remaining.seconds) is not None:
            parts.append(f"about {words(left)} left")
        bar.update(
            phases["cells"], completed=len(ended), total=total,
            note=escape(", ".join([*parts, *([at] if at else [])])),
        )  # fmt: skip

    with bar:
        yield Watch(prepare, planned, begun, done)


def words(seconds: float) -> str:
    """A time span as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _named(cell: Cell) -> str:
    return f"{cell.controller}, {cell.scenario}, seed {cell.seed}"
