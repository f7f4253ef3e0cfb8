"""Ended runs on their way to MLflow: one folder each, complete before anything is sent.

A folder ``outbox/LOCAL_ID`` holds ``record.json`` (what MLflow is told besides the files) and
``artifacts/`` (what it gets). It appears whole, by a rename, and goes only when MLflow has it all.
An addition to a run that was sent before is a folder of its own, ``outbox/LOCAL_ID+PART``.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from rudder.errors import HomeError, TrackingError
from rudder.home import Home
from rudder.result import RunResult
from rudder.tracking.store import exclusive

VERSION = 1
ERROR = "rudder.error"
"""Tag: why a run ended too early."""
LOG_TAIL_BYTES = 5_000_000
"""Of a longer log file, its end is kept."""
Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED", "AS IT IS"]


@dataclass(frozen=True)
class Record:
    """What MLflow is told of a run, besides its result.

    Attributes:
        local_id: made here, also a tag of the run: how a second attempt finds the first one's.
        uri: the tracking store that the user asked for, without password; None = the default
            store of the data directory, wherever that is moved.
        experiment, name: names of experiment and run.
        start_ms, end_ms: when it ran, ms since 1970 UTC; ``end_ms`` None = still running.
        status: ``RUNNING``, ``FINISHED``, ``FAILED`` or ``KILLED``; an addition leaves it ``AS IT
            IS``.
        params, tags: within MLflow's limits.
        metrics: beside those of the result; finite.
        parent: local id of the run that it belongs to; None = it stands alone.
        brief: neither metrics per minibatch nor figures; the table is among the artifacts.
        bare: it has no result, not even if it finished: a group, or an addition.
        part: what tells an addition from the run itself; "" for the latter.
    """

    local_id: str
    uri: str | None
    experiment: str
    name: str
    start_ms: int
    params: dict[str, str]
    tags: dict[str, str]
    status: Status = "RUNNING"
    end_ms: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    parent: str | None = None
    brief: bool = False
    bare: bool = False
    part: str = ""

    @property
    def package(self) -> str:
        """Name of its folder in the outbox."""
        return f"{self.local_id}+{self.part}" if self.part else self.local_id


_RECORDS = TypeAdapter(Record)


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
        """The run's result; None for a run that has none because it failed or was stopped.

        Raises:
            ResultError: it is damaged, or missing where there must be one.
        """
        needed = self.record.status == "FINISHED" and not self.record.bare
        if not needed and not (self.artifacts / "run.json").exists():
            return None
        return RunResult.load(self.artifacts)

    def discard(self) -> None:
        """Take it out of the outbox at once, then free its space."""
        if self.folder.exists():
            gone = self.folder.with_name(f".{self.folder.name}.sent")
            self.folder.rename(gone)
            # Another process that sweeps up may be faster; what is left is swept up later.
            shutil.rmtree(gone, ignore_errors=True)
        self.lock.unlink(missing_ok=True)


@dataclass(frozen=True)
class Damaged:
    """A folder of the outbox that holds no run, and why."""

    folder: Path
    reason: str


def pack(
    home: Home,
    record: Record,
    specs: dict[str, Any],
    *,
    result: RunResult | None = None,
    error: str | None = None,
    logs: Path | None = None,
    files: Mapping[str, Path] | None = None,
) -> Package:
    """Put an ended run into the outbox, in the place of what it left there before.

    Args:
        specs: file name -> JSON value, the full scenario and controller.
        error: the traceback of a run that failed.
        logs: a folder whose ``*.log`` files, and those below, come along.
        files: further files and folders, by the path that they get among the artifacts.

    Raises:
        TrackingError: the disk refuses.
    """
    try:
        folder = home.outbox / record.package
        part = folder.with_name(f".{record.package}.part")
        artifacts = part / "artifacts"
        if part.exists():  # a first attempt broke off
            shutil.rmtree(part)
        artifacts.mkdir(parents=True)
        for name, value in specs.items():
            (artifacts / name).write_text(json.dumps(value, indent=2) + "\n")
        if result is not None:
            result.save(artifacts)
            if not record.brief:
                from rudder.tracking import figures  # Matplotlib, only now

                figures.draw(result.minibatches, artifacts / "figures")
        if error is not None:
            (artifacts / "error.txt").write_text(error, errors="backslashreplace")
        if logs is not None:
            _copy_logs(logs, artifacts / "logs")
        for name, source in (files or {}).items():
            _copy(source, artifacts / name)
        (part / "record.json").write_text(
            json.dumps({"version": VERSION, **dataclasses.asdict(record)}, indent=2) + "\n"
        )
        package = Package(folder, record)
        with exclusive(package.lock) if folder.exists() else nullcontext():
            if folder.exists():  # it ended before, and the store was away
                package.discard()
            part.rename(folder)
    except (OSError, HomeError) as problem:
        raise TrackingError(f"cannot keep the run in {home.root}: {problem}") from problem
    return package


def pending(home: Home) -> list[Package | Damaged]:
    """What the outbox holds: damaged folders, then runs, oldest first.

    Removes what finished sends left behind.
    """
    for gone in home.outbox.glob(".*.sent"):
        shutil.rmtree(gone, ignore_errors=True)
    found = [_read(folder) for folder in sorted(home.outbox.glob("[!.]*")) if folder.is_dir()]
    damaged = [each for each in found if isinstance(each, Damaged)]
    packages = [each for each in found if isinstance(each, Package)]
    return [*damaged, *sorted(packages, key=lambda p: p.record.start_ms)]


def log_files(logs: Path) -> list[Path]:
    """The ``*.log`` files of a folder and those below it; none if it is not there."""
    return sorted(logs.rglob("*.log")) if logs.is_dir() else []


def _read(folder: Path) -> Package | Damaged | None:
    """None for a folder that another process has sent meanwhile."""
    path = folder / "record.json"
    try:
        data = json.loads(path.read_bytes())
        if not isinstance(data, dict) or data.pop("version", None) != VERSION:
            raise ValueError("damaged, or written by another version of Rudder")
        return Package(folder, _RECORDS.validate_python(data))
    except (OSError, ValueError) as error:
        if not folder.exists():
            return None
        return Damaged(folder, f"{path} is no record of a run: {error}; move {folder} away")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def _copy_logs(logs: Path, target: Path) -> None:
    for source in log_files(logs):
        copy = target / source.relative_to(logs)
        copy.parent.mkdir(parents=True, exist_ok=True)
        left_out = source.stat().st_size - LOG_TAIL_BYTES
        with source.open("rb") as reader, copy.open("wb") as writer:
            if left_out > 0:
                writer.write(f"[the first {left_out} bytes are left out]\n".encode())
                reader.seek(left_out)
            shutil.copyfileobj(reader, writer)
