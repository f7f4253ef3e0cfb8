"""A collection: runs under exploring schedules, with their decisions, made for labelling.

A directory ``HOME/collections/NAME/`` with ``request.json`` (what was asked for, written first),
``runs/ID/`` (run directories as engines write them) and ``collection.json``, which comes last: its
presence means that every run is there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from rudder.errors import CollectionError, MissingPathError, PathTakenError
from rudder.home import Home

SCHEMA_VERSION = 1
COLLECTION_FILE = "collection.json"
REQUEST_FILE = "request.json"
RUNS = "runs"

EngineName = Literal["replay", "distdgl"]
_Facts = TypeVar("_Facts")


@dataclass(frozen=True)
class CollectedRun:
    """One finished run of a collection.

    Attributes:
        id: readable, and the same whenever the same run is asked for.
        scenario: its name in the suite.
        split: of the scenario.
        seed: of the run and of its access trace.
        schedule: controller spec as text, defaults spelled out.
        scenario_digest: of the scenario as the suite has it, whatever the seed.
        graph: dataset spec.
        trace_id: of the access trace. Runs over one trace are not independent.
        trace: where that lies; relative to the data directory if it lies below.
        run_dir: relative to the collection.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: str
    scenario: str
    split: str
    seed: int
    schedule: str
    scenario_digest: str
    graph: str
    trace_id: str
    trace: str
    run_dir: str


@dataclass(frozen=True)
class Request:
    """What a collection is made of; a finished one is never mixed with another.

    Attributes:
        suite: its name.
        suite_digest: of the scenarios that were chosen from it.
        engine: ``replay`` over sampled traces, or ``distdgl``.
        seeds: of each scenario.
        schedules: controller specs as text, defaults spelled out.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    suite: str
    suite_digest: str
    engine: EngineName
    seeds: tuple[int, ...]
    schedules: tuple[str, ...]


@dataclass(frozen=True)
class _Content:
    """``collection.json``, but its schema version."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    suite: str
    suite_digest: str
    engine: EngineName
    seeds: tuple[int, ...]
    schedules: tuple[str, ...]
    made_with: dict[str, str]
    runs: tuple[CollectedRun, ...]


@dataclass(frozen=True)
class Collection:
    """A finished collection.

    Attributes:
        folder: where it lies.
        home: data directory that paths of traces are relative to.
        name: of the folder when it was made.
        request: what it is made of.
        made_with: versions of libraries.
        runs: in the order of the suite, then seeds, then schedules.
    """

    folder: Path
    home: Home
    name: str
    request: Request
    made_with: Mapping[str, str]
    runs: tuple[CollectedRun, ...]

    @classmethod
    def open(cls, given: str | Path | None, home: Home) -> Collection:
        """Read the collection that a user means.

        Args:
            given: a name under ``collections/``, a path, or None: the newest one that is finished.

        Raises:
            MissingPathError: there is none.
            CollectionError: unfinished, damaged, or of another schema version.
        """
        folder = _newest(home) if given is None else _folder(given, home)
        content = _read(folder / COLLECTION_FILE, _Content)
        asked = {f.name: getattr(content, f.name) for f in dataclasses.fields(Request)}
        collection = cls(
            folder, home, content.name, Request(**asked), content.made_with, content.runs
        )
        for run in collection.runs:
            if not (collection.run_dir(run) / "run.json").is_file():
                raise CollectionError(
                    f"the collection {folder} lacks the run {run.id}: {collection.run_dir(run)} "
                    f"holds none; make it again with 'rudder collect {content.suite} "
                    f"--name {content.name}'"
                )
        return collection

    def run_dir(self, run: CollectedRun) -> Path:
        """Where a run lies, as :meth:`rudder.result.RunResult.load` takes it."""
        return self.folder / run.run_dir

    def trace(self, run: CollectedRun) -> Path:
        """Where a run's access trace lies, as :meth:`rudder.trace.Trace.open` takes it."""
        return self.home.root / run.trace

    def digest(self) -> str:
        """SHA-256 of ``collection.json``, 64 hex digits."""
        return hashlib.sha256((self.folder / COLLECTION_FILE).read_bytes()).hexdigest()

    def save(self) -> None:
        """Write ``collection.json``, whole or not at all."""
        content = _Content(
            name=self.name,
            **dataclasses.asdict(self.request),
            made_with=dict(self.made_with),
            runs=self.runs,
        )
        _write(self.folder / COLLECTION_FILE, dataclasses.asdict(content))


def begin(folder: Path, request: Request) -> None:
    """Make a collection's directory, or go on in one that was made for the same request.

    Raises:
        PathTakenError: it was made for another request, or something else lies there.
        CollectionError: what lies there is damaged.
    """
    path = folder / REQUEST_FILE
    if path.is_file():
        found = _read(path, Request)
        if found != request:
            told = "; ".join(
                f"{f.name} is {_told(getattr(found, f.name))}, asked for is "
                f"{_told(getattr(request, f.name))}"
                for f in dataclasses.fields(Request)
                if getattr(found, f.name) != getattr(request, f.name)
            )
            raise PathTakenError(
                f"the collection {folder} was made of something else: {told}. Choose another name "
                "with --name, or remove that directory first"
            )
        return
    if folder.exists() and any(folder.iterdir()):
        raise PathTakenError(
            f"{folder} is no collection, and not empty; choose another name with --name"
        )
    (folder / RUNS).mkdir(parents=True, exist_ok=True)
    _write(path, dataclasses.asdict(request))


def _folder(given: str | Path, home: Home) -> Path:
    path = Path(given).expanduser()
    for folder in (home.collections / path, path.resolve()):
        if (folder / COLLECTION_FILE).is_file():
            return folder
        if (folder / REQUEST_FILE).is_file():
            asked = _read(folder / REQUEST_FILE, Request)
            raise CollectionError(
                f"the collection {folder} is not finished; finish it with 'rudder collect "
                f"{asked.suite} --name {folder.name}', asked as before"
            )
    raise MissingPathError(
        f"no collection at {home.collections / path} nor at {path.resolve()}; there are "
        f"{', '.join(sorted(f.parent.name for f in _finished(home))) or 'none'}: make one with "
        "'rudder collect SUITE'"
    )


def _newest(home: Home) -> Path:
    found = _finished(home)
    if not found:
        raise MissingPathError(
            f"no finished collection in {home.collections}; make one with 'rudder collect train'"
        )
    return max(found, key=lambda path: (path.stat().st_mtime_ns, path.parent.name)).parent


def _finished(home: Home) -> list[Path]:
    return list(home.collections.glob(f"*/{COLLECTION_FILE}"))


def _told(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(
        value, str
    ) else repr(value)  # fmt: skip


def _write(path: Path, values: Mapping[str, Any]) -> None:
    scratch = path.with_name(path.name + ".part")
    scratch.write_text(json.dumps({"schema_version": SCHEMA_VERSION, **values}, indent=1) + "\n")
    scratch.replace(path)


def _read(path: Path, kind: type[_Facts]) -> _Facts:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CollectionError(f"{path} cannot be read: {error}; collect again") from error
    version = values.pop("schema_version", None) if isinstance(values, dict) else None
    if version != SCHEMA_VERSION:
        raise CollectionError(
            f"{path} has schema version {version!r}, this Rudder reads {SCHEMA_VERSION}; collect "
            "again under another name"
        )
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        raise CollectionError(f"{path} does not describe a collection: {error}") from error
