"""Cells of a long study, each measured once, by any number of processes, over any number of calls.

What is measured is appended to a file of JSON lines as soon as it is there; whoever starts again
goes on behind it. A cell is claimed by a lock on one byte of a file beside it, which ends with its
process: a cell whose process died is free again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

Found = Mapping[str, Mapping[str, Any]]
"""What was measured, by key of the cell."""

_Cell = TypeVar("_Cell")


def key_of(cell: Any) -> str:
    """The same for equal dataclass instances: 16 hex digits."""
    return hashlib.sha256(json.dumps(asdict(cell), sort_keys=True).encode()).hexdigest()[:16]


class Cells:
    """The cells of a file. One object per process.

    Args:
        path: of the JSON lines; made where it is not there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = path.with_name(path.name + ".lock").open("a")

    def found(self) -> dict[str, dict[str, Any]]:
        """What was measured so far. A line that a killed process left unfinished is passed over."""
        found = {}
        for line in self.path.read_text().splitlines() if self.path.is_file() else ():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            found[record["key"]] = record
        return found

    def add(self, cell: Any, measured: Mapping[str, Any]) -> None:
        """Append what a cell came to."""
        line = json.dumps({"key": key_of(cell), "cell": asdict(cell), **measured})
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            # A line of its own, also behind one that was left unfinished.
            os.write(descriptor, f"\n{line}\n".encode())
        finally:
            os.close(descriptor)

    @contextmanager
    def _claim(self, key: str) -> Iterator[bool]:
        """Nobody else has this cell meanwhile; False if somebody has it already."""
        at = int(key[:8], 16)
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN, 1, at)

    def work(
        self,
        wanted: Callable[[Found], Iterable[_Cell]],
        measure: Callable[[_Cell], Mapping[str, Any]],
        until: float | None = None,
    ) -> None:
        """Measure what is wanted, in order, until nothing that is free is left.

        Args:
            wanted: the cells, given what was measured; asked again before each.
            measure: one of them.
            until: ``time.monotonic()`` from which on no cell is begun; None = no end.
        """
        while (until is None or time.monotonic() < until) and self._one(wanted, measure):
            pass

    def _one(
        self,
        wanted: Callable[[Found], Iterable[_Cell]],
        measure: Callable[[_Cell], Mapping[str, Any]],
    ) -> bool:
        """Was there a cell to measure?"""
        found = self.found()
        for cell in wanted(found):
            key = key_of(cell)
            if key in found:
                continue
            with self._claim(key) as mine:
                # It may have been measured since it was looked up.
                if mine and key not in self.found():
                    self.add(cell, measure(cell))
                    return True
        return False
