"""Runs that have not ended: a note of each in the outbox, so that those of dead processes end too.

A process that is killed or loses its machine tells MLflow nothing, and its run would be RUNNING
for ever. A note ``outbox/.LOCAL_ID.running`` says which process it is, by what no other process
shares. Whoever comes next and finds that process gone puts the run into the outbox, as KILLED.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rudder.errors import TrackingError
from rudder.home import Home
from rudder.identity import Process
from rudder.tracking.outbox import ERROR, Package, Record, log_files, pack
from rudder.tracking.store import exclusive

_log = logging.getLogger(__name__)

VERSION = 1


@dataclass(frozen=True)
class Note:
    """What has to be known to end a run in the place of its process.

    Attributes:
        specs, logs: as for :func:`rudder.tracking.outbox.pack`; ``logs`` as text.
    """

    record: Record
    specs: dict[str, Any]
    process: Process
    logs: str | None = None

    def keep(self, home: Home) -> None:
        """Write it, or write it anew.

        Raises:
            TrackingError: the disk refuses.
        """
        path = _path(home, self.record.local_id)
        part = _part(path)
        try:
            part.write_text(json.dumps({"version": VERSION, **dataclasses.asdict(self)}) + "\n")
            part.replace(path)
        except OSError as error:
            raise TrackingError(f"cannot note in {path} that the run began: {error}") from error


_NOTES = TypeAdapter(Note)


def forget(home: Home, local_id: str) -> None:
    """Take away the note of a run that has ended, and what writing it may have left."""
    path = _path(home, local_id)
    path.unlink(missing_ok=True)
    _part(path).unlink(missing_ok=True)


def end_those_of_dead_processes(home: Home) -> list[Package]:
    """Put the runs whose process is gone into the outbox as KILLED; what was put there.

    It sends nothing. A note that cannot be read stays, with a warning.
    """
    found = []
    for path in sorted(home.outbox.glob(".*.running")):
        try:
            note = _read(path)
            package = _end(home, path, note) if note.process.is_gone() else None
        except FileNotFoundError:
            continue  # it has ended meanwhile
        except (TrackingError, OSError) as error:
            _log.warning("%s", error)
            continue
        if package is not None:
            found.append(package)
    return found


def _end(home: Home, path: Path, note: Note) -> Package | None:
    """Pack the run of one note and take the note away; None if it was packed before."""
    folder = home.outbox / note.record.local_id
    package = Package(folder, note.record)
    with exclusive(package.lock):
        if not path.exists():  # another process was faster
            if not folder.exists():
                package.lock.unlink(missing_ok=True)
            return None
        if folder.exists():  # its process died between the two steps of ending it
            forget(home, note.record.local_id)
            return None
        logs = None if note.logs is None else Path(note.logs)
        reason = f"Its process ({note.process}) was killed, or its machine went down."
        record = dataclasses.replace(
            note.record,
            status="KILLED",
            end_ms=_last_sign_of_life_ms(path, logs),
            tags={**note.record.tags, ERROR: reason},
        )
        package = pack(home, record, note.specs, error=reason, logs=logs)
        forget(home, record.local_id)
    _log.warning("Run %r is ended as KILLED. %s", record.name, reason)
    return package


def _last_sign_of_life_ms(note: Path, logs: Path | None) -> int:
    files = [note, *(log_files(logs) if logs is not None else ())]
    return int(1000 * max(file.stat().st_mtime for file in files))


def _path(home: Home, local_id: str) -> Path:
    return home.outbox / f".{local_id}.running"


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _read(path: Path) -> Note:
    text = path.read_bytes()
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("version", None) != VERSION:
            raise ValueError("damaged, or written by another version of Rudder")
        return _NOTES.validate_python(data)
    except ValueError as error:
        raise TrackingError(
            f"{path} is no note of a run: {error}; delete it if no run is going on"
        ) from error
