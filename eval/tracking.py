"""Sweeps in MLflow: one parent run per sweep, one child per cell, one level."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rudder.home import Home
from rudder.result import RunResult
from rudder.tracking import TrackedRun, Tracker
from rudder.tracking.tracker import Sent

from .cells import Cell
from .sweep import CELLS, HEAD, Planned, Sweep

EXPERIMENT = "rudder"


def local_id_of(run_id: str) -> str:
    """How a cell's run is known on its way to MLflow: told twice, it is there once."""
    return hashlib.sha256(f"cell {run_id}".encode()).hexdigest()[:32]


def tags_of(cell: Planned, sweep: str) -> dict[str, str]:
    """What runs are searched and grouped by."""
    return {
        "sweep": sweep,
        "controller": cell.controller,
        "family": cell.family,
        "split": cell.split,
        "distribution": "OOD" if cell.axis else "ID",
        "axis": cell.axis or "in distribution",
        "scenario": cell.scenario,
        "seed": str(cell.seed),
        "engine": cell.engine,
        "cell": cell.cell,
        "rudder.engine": cell.engine,
        "rudder.split": cell.split,
    }


def log_cell(
    tracker: Tracker,
    cell: Planned,
    sweep: str,
    parent: str,
    run_id: str,
    *,
    times_ms: tuple[int, int],
    result: RunResult | None = None,
    error: str | None = None,
    logs: Path | None = None,
) -> str | None:
    """Track the ended run of a cell; its id in MLflow, None while the store is away.

    Args:
        parent: local id of the sweep.
        times_ms: when it began and ended.
        result: None = it failed, with ``error``.
        logs: as for :meth:`rudder.tracking.Tracker.log`.
    """
    scenario = cell.run if result is None else result.scenario
    begun, ended = times_ms
    sent = tracker.log(
        local_id_of(run_id), scenario, cell.spec, start_ms=begun, end_ms=ended, result=result,
        error=error, tags={**tags_of(cell, sweep), "rudder.run_id": run_id},
        experiment=EXPERIMENT, name=f"{cell.controller} · {cell.scenario} · seed {cell.seed}",
        parent=parent, logs=logs,
        # Thousands of replays: what MLflow draws per minibatch would take longer than they do.
        brief=cell.engine == "replay",
    )  # fmt: skip
    return sent.run_id


def open_parent(tracker: Tracker, sweep: Sweep) -> TrackedRun:
    """The run that stands for a sweep, to enter with ``with``; the same one when it goes on.

    A sweep that goes to another store than before begins a new one there.
    """
    uri = None if tracker.store.is_default else tracker.store.shown
    told = sweep.head.get("mlflow") or {}
    if told.get("uri") != uri or not told.get("local_id"):
        told = {"local_id": uuid.uuid4().hex, "uri": uri, "name": f"sweep {sweep.name}"}
        sweep.save(mlflow=told)
    suite, seeds = sweep.head["suite"], sweep.head["seeds"]
    names = [one["name"] for one in sweep.head["controllers"]]
    return tracker.group(
        told["local_id"],
        told["name"],
        {"sweep": sweep.name, "suite": suite["name"], "engine": sweep.head["engine"]},
        {
            "sweep": sweep.name,
            "kind": "sweep",
            "suite": suite["name"],
            "suite_digest": suite["digest"],
            "engine": sweep.head["engine"],
            "controllers": ", ".join(names),
            "scenarios": ", ".join(suite["scenarios"]),
            "seeds": ", ".join(map(str, seeds)),
            "rudder.engine": sweep.head["engine"],
        },
        EXPERIMENT,
    )


def parent_files(sweep: Sweep) -> dict[str, Path]:
    """What the parent run gets of a sweep's directory."""
    paths = {name: sweep.folder / name for name in (HEAD, CELLS)}
    return {name: path for name, path in paths.items() if path.exists()}


def counts(cells: list[Cell]) -> dict[str, float]:
    """Metrics of the parent run while nothing else is known of the sweep."""
    finished = sum(cell.finished for cell in cells)
    seconds = sum(cell.seconds or 0.0 for cell in cells)
    return {
        "cells_finished": finished, "cells_failed": len(cells) - finished,
        "cell_seconds": seconds,
    }  # fmt: skip


def add_to_parent(
    home: Home,
    folder: Path,
    *,
    metrics: Mapping[str, Any] | None = None,
    files: Mapping[str, Path] | None = None,
    tags: Mapping[str, str] | None = None,
) -> Sent | None:
    """Put figures and files of a report onto a sweep's parent run; None if it is not tracked.

    Args:
        folder: of the sweep.
        metrics: numbers by name; those that are not finite become tags.
        files: files and folders, by their path among the artifacts.

    A store that is away gets them by ``rudder sync``.

    Raises:
        SweepError: no sweep lies in the folder.
        UsageError: the store's URI is none.
        TrackingError: they cannot even be kept on disk.
    """
    told = Sweep.open(folder).head.get("mlflow")
    if not told:
        return None
    return Tracker(home, told["uri"]).add(
        told["local_id"], told["name"], tags=tags, metrics=metrics, files=files,
        experiment=EXPERIMENT,
    )  # fmt: skip
