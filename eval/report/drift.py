"""What controllers decided while the access pattern drifted, from their runs' directories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rudder.scenario import DRIFT, Scenario

from ..cells import Cell
from ..robustness.intervals import Floats


@dataclass(frozen=True)
class Decided:
    """One run's decisions over its minibatches.

    Attributes:
        cell: the run.
        replaced: share of trainers whose answer, applied at that minibatch, says replace:
            float64 ``[minibatches]``.
        hits: mean %-Hits over trainers of the window observed there, 0..1; NaN where none was.
        epochs: minibatches at which an epoch began, the first one left out.
    """

    cell: Cell
    replaced: Floats
    hits: Floats
    epochs: tuple[int, ...]


def drifting(cells: Sequence[Cell], home: Path) -> list[str]:
    """Scenarios whose accesses drift: by their axis, else by what their runs say they were."""
    found = []
    for name in dict.fromkeys(cell.scenario for cell in cells):
        own = [cell for cell in cells if cell.scenario == name and cell.finished]
        if any(cell.axis == "drift" for cell in own) or (own and _drifts(run_dir(own[0], home))):
            found.append(name)
    return found


def run_dir(cell: Cell, home: Path) -> Path | None:
    """Where a cell's run lies, if it is still there."""
    folder = home / cell.run_dir if cell.run_dir else None
    return folder if folder is not None and folder.is_dir() else None


def _drifts(folder: Path | None) -> bool:
    if folder is None:
        return False
    try:
        scenario = json.loads((folder / "run.json").read_text(encoding="utf-8"))["scenario"]
        return any(
            scenario.get(field) not in (None, [], {}, Scenario.model_fields[field].default)
            for field in DRIFT
            if field != "phases"  # says nothing while seeds are drawn uniformly
        )
    except (OSError, ValueError, LookupError, AttributeError):
        return False  # a run that is gone or damaged drifted as far as its suite says


def decided(cell: Cell, home: Path) -> Decided | None:
    """A run's decisions; None where they are gone, were not kept, or cannot be read."""
    folder = run_dir(cell, home)
    if folder is None:
        return None
    try:
        lines = (folder / "decisions.jsonl").read_text(encoding="utf-8").splitlines()
        return _decided(cell, [json.loads(line) for line in lines])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _decided(cell: Cell, records: list[dict[str, Any]]) -> Decided | None:
    ranks = {record["rank"] for record in records}
    seen = [record["observation"] for record in records]
    if not records:
        return None
    length = 1 + max(
        max(o["minibatch"] for o in seen), max(record["applied_at"] or 0 for record in records)
    )
    replaced, hits, answers = np.zeros(length), np.zeros(length), np.zeros(length)
    epoch_of = np.full(length, -1)
    for record, observation in zip(records, seen, strict=True):
        at = observation["minibatch"]
        epoch_of[at] = observation["epoch"]
        rate = observation["window"]["hit_rate"]
        if rate is not None:
            hits[at] += rate
            answers[at] += 1
        if record["applied_at"] is not None and record["decision"]["replace"]:
            replaced[record["applied_at"]] += 1
    known = np.flatnonzero(epoch_of >= 0)
    changes = known[1:][np.diff(epoch_of[known]) > 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        hits = np.where(answers > 0, hits / answers, np.nan)
    return Decided(cell, replaced / len(ranks), hits, tuple(int(c) for c in changes))
