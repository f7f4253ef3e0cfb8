"""A cell of a sweep: one controller in one scenario under one seed, and what came of it.

``cells.jsonl`` holds one JSON object a line, appended as cells end. A cell that failed and is run
again gets another line: the last one counts.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rudder.errors import ResultError
from rudder.plain import plain

Status = Literal["finished", "failed"]
Family = Literal["baseline", "heuristic", "classifier", "llm", "oracle", "control", "constant"]
"""What kind of controller: ``baseline`` does not steer, ``oracle`` knows the future, ``control``
stands beside a learned controller or an agent, ``constant`` is a schedule run for headroom."""
FAMILIES: tuple[Family, ...] = (
    "baseline", "heuristic", "classifier", "llm", "oracle", "control", "constant",
)  # fmt: skip
WORTH_DECIDING = 0.02
"""Headroom from which a scenario says anything about controllers, and enters rankings."""
CONTROLS = ("rate", "shuffled")
"""Kinds of controls: random at the same rate and latency; the same answers in another order."""


@dataclass(frozen=True)
class Cell:
    """One line of ``cells.jsonl``.

    Attributes:
        cell: digest of scenario with seed, resolved controller, engine and trace, 16 hex digits.
        scenario: its name in the suite.
        split: one of :data:`rudder.suite.SPLITS`.
        axis: what was shifted; "" in distribution.
        controller: what the user asked for, or ``control-KIND(CONTROLLER)``.
        family: of the controller.
        seed: of trace, initial model and controller.
        status: a failed cell has an ``error`` and an empty summary.
        run_id, run_dir: of the run; ``run_dir`` may be relative to the data directory.
        mlflow_run_id: None where it was not tracked.
        error: one line: class and message.
        summary: the run's summary (:data:`rudder.result.SUMMARY_KEYS`, bounds and regrets, what the
            steering tallied), and ``best_constant`` (rows of the best constant schedule) and
            ``headroom`` (that beside the oracle's, a share). Null or missing = meaningless.
        seconds: wall time of the cell.
        engine: ``replay`` or ``distdgl``.
        spec: the resolved controller (:meth:`rudder.spec.Spec.to_dict`).
    """

    cell: str
    scenario: str
    split: str
    controller: str
    family: Family
    seed: int
    status: Status
    axis: str = ""
    run_id: str = ""
    run_dir: str = ""
    mlflow_run_id: str | None = None
    error: str | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    engine: str = "replay"
    spec: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Cell:
        """A cell from its line; what later versions add is left out.

        Raises:
            ResultError: a field is missing, or has a value that none can have.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        try:
            cell = cls(**{key: value for key, value in data.items() if key in known})
        except TypeError as error:
            raise ResultError(f"no cell of a sweep: {error}") from error
        if cell.family not in FAMILIES or cell.status not in ("finished", "failed"):
            raise ResultError(
                f"cell {cell.cell}: family {cell.family!r} and status {cell.status!r}, but "
                f"families are {', '.join(FAMILIES)}, and a cell is finished or failed"
            )
        return cell

    def to_dict(self) -> dict[str, Any]:
        """As it is written: plain values; NaN and infinity become null."""
        told: dict[str, Any] = plain(self)
        return told

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    def value(self, metric: str) -> float | None:
        """A number of the summary; None where it is missing, null, infinite or no number."""
        value = self.summary.get(metric)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if math.isfinite(value) else None


def control_name(kind: str, controller: str) -> str:
    """What the control of a controller is called."""
    return f"control-{kind}({controller})"


def controlled(name: str) -> tuple[str, str] | None:
    """``(kind, controller)`` of a control's name; None for any other controller."""
    for kind in CONTROLS:
        start = f"control-{kind}("
        if name.startswith(start) and name.endswith(")"):
            return kind, name[len(start) : -1]
    return None


def append_cell(path: Path, cell: Cell) -> None:
    """Add a line, on the disk when this returns; several processes may do so at once.

    A line that an earlier process was killed in is ended first.

    Raises:
        ResultError: the file cannot be written.
    """
    line = json.dumps(cell.to_dict(), separators=(",", ":"), ensure_ascii=False) + "\n"
    try:
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # given back when it is closed, or by the kernel
            if file.seek(0, 2):
                file.seek(-1, 2)
                line = line if file.read(1) == b"\n" else "\n" + line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ResultError(f"{path} cannot be written: {error.strerror}") from error


def read_cells(path: Path) -> list[Cell]:
    """The cells of a sweep, in the order in which they first ended; the last line of each counts.

    Lines that a killed process left unfinished are no cells.

    Raises:
        ResultError: the file cannot be read, or a whole line is no cell.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror}") from error
    return latest(_parse(path, lines))


def latest(cells: Iterable[Cell]) -> list[Cell]:
    """The last of the cells that share a digest, where the first one stood."""
    found: dict[str, Cell] = {}
    for cell in cells:
        found[cell.cell] = cell
    return list(found.values())


def _parse(path: Path, lines: list[str]) -> Iterable[Cell]:
    for number, line in enumerate(lines, start=1):
        try:
            data = json.loads(line)
        except ValueError:
            continue  # empty, or cut short by a kill
        try:
            yield Cell.from_dict(data)
        except (ResultError, AttributeError) as error:
            raise ResultError(f"{path}:{number}: {error}") from error
