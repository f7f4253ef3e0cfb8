"""``decisions.jsonl``: what was asked, answered and followed, appended as it happens.

One JSON object a line, of the following kinds, each flushed when written:

- ``task``: first line; schema version, rank, seed and the static facts.
- ``decision``: one question that was closed: ``question`` (index of the observation), ``asked_at``
  (minibatches pulled when it went out), ``applied_at`` (step, from 0, of the first minibatch pulled
  under the answer; null = never applied), ``outcome``, ``decision``, ``answer_s`` (seconds from
  question to answer; null = none arrived), ``waited_s`` (seconds that a pull waited), ``at`` (wall
  time, seconds since 1970) and ``observation`` without the facts and without the history: these
  are the lines above it.
- ``effect``: one applied decision that settled: ``question``, ``settled_at`` (minibatches pulled
  when this was known) and the fields of :class:`rudder.Past` that were measured.

Effects are lines of their own because they are known later, and a file that only grows is whole
after a crash but for its last line. :func:`read_decisions` folds them into their decisions.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rudder.decision import Decision
from rudder.errors import ResultError
from rudder.observation import Observation, Past, Task, Window
from rudder.steering.context import Settled

_log = logging.getLogger(__name__)

SCHEMA_VERSION = 1


class Journal:
    """Appends records in a thread of its own, so that no pull ever waits for a disk.

    Args:
        path: the file; it is made anew.
        earlier: whole lines that it begins with, of an earlier process of the same run.

    Raises:
        ResultError: the file cannot be made.
    """

    def __init__(self, path: Path, earlier: bytes = b"") -> None:
        self._path = path
        self._queue: queue.SimpleQueue[dict[str, Any] | threading.Event | None] = (
            queue.SimpleQueue()
        )
        self._failure: OSError | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(earlier)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise ResultError(f"{path} cannot be written: {error.strerror}") from error
        self._thread = threading.Thread(target=self._run, name="rudder-journal", daemon=True)
        self._thread.start()

    def task(self, task: Task) -> None:
        record = {"kind": "task", "schema_version": SCHEMA_VERSION, **task.to_dict()}
        self._queue.put(record)

    def decision(
        self,
        observation: Observation,
        decision: Decision,
        *,
        rank: int,
        applied_at: int | None,
        answer_s: float | None,
        waited_s: float,
        at: float,
    ) -> None:
        self._queue.put(
            {
                "kind": "decision",
                "rank": rank,
                "question": observation.index,
                "asked_at": observation.minibatch,
                "applied_at": applied_at,
                "outcome": decision.outcome,
                "decision": decision,
                "answer_s": answer_s,
                "waited_s": waited_s,
                "at": at,
                "observation": observation,
            }
        )

    def effect(self, settled: Settled) -> None:
        self._queue.put(
            {
                "kind": "effect",
                "question": settled.question,
                "settled_at": settled.settled_at,
                "effect": settled.past,
            }
        )

    def position(self) -> int:
        """Bytes of the file when all records so far are on the disk.

        Raises:
            ResultError: some record could not be written.
        """
        written = threading.Event()
        self._queue.put(written)
        written.wait()
        self._check()
        return self._path.stat().st_size

    def close(self) -> None:
        """Write what is left.

        Raises:
            ResultError: some record could not be written.
        """
        self._queue.put(None)
        self._thread.join()
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise ResultError(
                f"{self._path} is incomplete: {self._failure.strerror or self._failure}; "
                "free some space and run again"
            )

    def _run(self) -> None:
        while (record := self._queue.get()) is not None:
            if isinstance(record, threading.Event):
                self._sync()
                record.set()
            elif self._failure is None:
                self._write(record)
        try:
            self._file.close()
        except OSError as error:
            self._failure = self._failure or error

    def _sync(self) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._failure = self._failure or error

    def _write(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(_plain(record), separators=(",", ":")) + "\n")
            if self._queue.empty():
                self._file.flush()
        except OSError as error:
            self._failure = error
            _log.error("%s: %s; decisions are recorded no longer", self._path, error)


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the dataclasses of a record into plain values; in the journal's thread."""
    plain = dict(record)
    if (decision := plain.get("decision")) is not None:
        plain["decision"] = _fields(decision)
    if (observation := plain.pop("observation", None)) is not None:
        plain["observation"] = {
            "index": observation.index,
            "minibatch": observation.minibatch,
            "epoch": observation.epoch,
            "progress": observation.progress,
            "modelled_seconds": observation.modelled_seconds,
            "window": _fields(observation.window),
        }
    if (past := plain.pop("effect", None)) is not None:
        effect = _fields(past)
        del effect["decision"]
        plain.update(effect)
    return plain


def _fields(record: Decision | Window | Past) -> dict[str, Any]:
    """As ``dataclasses.asdict``, which copies deeply and took most of a replay's time."""
    return {name: getattr(record, name) for name in record.__slots__}


def read_decisions(path: Path) -> list[dict[str, Any]]:
    """The decisions of one journal in order, each with its ``effect`` (null = not settled).

    A last line that a crash cut short is left out.

    Raises:
        ResultError: the file is missing, of another schema version, or damaged elsewhere.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror}") from error
    return parse_decisions(text, str(path))


def parse_decisions(text: str, path: str) -> list[dict[str, Any]]:
    """:func:`read_decisions` of the text of a journal; ``path`` is for messages."""
    lines = text.split("\n")
    decisions: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        # Every whole line ends in a newline: what follows the last one was cut short.
        if number == len(lines):
            break
        try:
            record = json.loads(line)
            kind = record.pop("kind")
            if kind == "task":
                version = record["schema_version"]
                if version != SCHEMA_VERSION:
                    raise ResultError(
                        f"{path} has schema version {version}, this Rudder reads {SCHEMA_VERSION}"
                    )
            elif kind == "decision":
                decisions[record["question"]] = {**record, "effect": None}
            else:
                decisions[record.pop("question")]["effect"] = record
        except (ValueError, KeyError) as error:
            raise ResultError(f"{path}:{number} is no record of a decision: {error}") from error
    return list(decisions.values())
