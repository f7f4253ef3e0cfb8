"""Ended runs on their way to MLflow: one folder each, complete before anything is sent.

A folder ``outbox/LOCAL_ID`` holds ``record.json`` (what MLflow is told besides the files) and
``artifacts/`` (what it gets). It appears whole, by a rename, and goes only when MLflow has it all.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudder.errors import TrackingError
from rudder.home import Home
from rudder.result import RunResult

VERSION = 1
LOG_TAIL_BYTES = 5_000_000
"""Of a longer log file, its end is kept."""


@dataclass(frozen=True)
class Record:
    """What MLflow is told of a run, besides its result.

    Attributes:
        local_id: made here, also a tag of the run: how a second attempt finds the first one's.
        uri: the tracking store that the user asked for, without password; None = the default
            store of the data directory, wherever that is moved.
        experiment, name: names of experiment and run.
        start_ms, end_ms: when it ran, ms since 1970 UTC; ``end_ms`` None = still running.
        status: ``RUNNING``, ``FINISHED``, ``FAILED`` or ``KILLED``.
        params, tags: within MLflow's limits.
    """

    local_id: str
    uri: str | None
    experiment: str
    name: str
    start_ms: int
    params: dict[str, str]
    tags: dict[str, str]
    status: str = "RUNNING"
    end_ms: int | None = None


@dataclass(frozen=True)
class Package:
    """One folder of the outbox."""

    folder: Path
    record: Record

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    @property
    def lock(self) -> Path:
        return self.folder.with_name(f".{self.folder.name}.lock")

    def result(self) -> RunResult | None:
        """The run's result; None for a run that has none because it failed."""
        if not (self.artifacts / "run.json").exists():
            return None
        return RunResult.load(self.artifacts)

    def discard(self) -> None:
        """Take it out of the outbox at once, then free its space."""
        if self.folder.exists():
            gone = self.folder.with_name(f".{self.folder.name}.sent")
            self.folder.rename(gone)
            shutil.rmtree(gone)
        self.lock.unlink(missing_ok=True)


def pack(
    home: Home,
    record: Record,
    specs: dict[str, Any],
    *,
    result: RunResult | None = None,
    error: str | None = None,
    logs: Path | None = None,
) -> Package:
    """Put an ended run into the outbox.

    Args:
        specs: file name -> JSON value, the full scenario and controller.
        error: the traceback of a run that failed.
        logs: a folder whose ``*.log`` files, and those below, come along.

    Raises:
        TrackingError: the disk refuses.
    """
    folder = home.outbox / record.local_id
    part = folder.with_name(f".{record.local_id}.part")
    artifacts = part / "artifacts"
    try:
        if part.exists():  # a first attempt broke off
            shutil.rmtree(part)
        artifacts.mkdir(parents=True)
        for name, value in specs.items():
            (artifacts / name).write_text(json.dumps(value, indent=2) + "\n")
        if result is not None:
            result.save(artifacts)
            from rudder.tracking import figures  # Matplotlib, only now

            figures.draw(result.minibatches, artifacts / "figures")
        if error is not None:
            (artifacts / "error.txt").write_text(error, errors="backslashreplace")
        if logs is not None:
            _copy_logs(logs, artifacts / "logs")
        (part / "record.json").write_text(
            json.dumps({"version": VERSION, **dataclasses.asdict(record)}, indent=2) + "\n"
        )
        part.rename(folder)
    except OSError as problem:
        raise TrackingError(f"cannot keep the run in {home.outbox}: {problem}") from problem
    return Package(folder, record)


def pending(home: Home) -> Iterator[Package]:
    """The runs in the outbox, oldest first; removes what finished sends left behind.

    Raises:
        TrackingError: a record cannot be read.
    """
    for gone in home.outbox.glob(".*.sent"):
        shutil.rmtree(gone)
    packages = [_read(path.parent) for path in home.outbox.glob("[!.]*/record.json")]
    yield from sorted(packages, key=lambda p: p.record.start_ms)


def _read(folder: Path) -> Package:
    path = folder / "record.json"
    try:
        data = json.loads(path.read_text())
        if data.pop("version") != VERSION:
            raise ValueError("written by another version of Rudder")
        return Package(folder, Record(**data))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrackingError(
            f"{path} is no record of a run: {error}; move {folder} away to sync the others"
        ) from error


def _copy_logs(logs: Path, target: Path) -> None:
    for source in sorted(logs.rglob("*.log")) if logs.is_dir() else ():
        copy = target / source.relative_to(logs)
        copy.parent.mkdir(parents=True, exist_ok=True)
        left_out = source.stat().st_size - LOG_TAIL_BYTES
        with source.open("rb") as reader, copy.open("wb") as writer:
            if left_out > 0:
                writer.write(f"[the first {left_out} bytes are left out]\n".encode())
                reader.seek(left_out)
            shutil.copyfileobj(reader, writer)
