"""How a role tells its supervisor what it has reached.

A report is a line on the role's stdout, framed so that it cannot be taken for log text, so it
passes over whatever carries stdout: a pipe, ssh, srun. A frame holds at most 3000 characters,
since the kernel writes only up to 4096 bytes to a pipe in one piece; longer reports are sent in
several frames. Text around the frames, before one on the same line too, stays log text.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

VARIABLE = "RUDDER_REPORTS"
"""Set in a role's environment when somebody reads its reports."""

_CHUNK = 3000
_FRAME = re.compile(rb"\x1e@rudder (\d+\.\d+) (\d+)/(\d+) ([^\x1e]*)\x1e\r?\n")
_OPENING = b"\x1e@rudder "
_LONGEST_FRAME = 4096

_lock = threading.Lock()
_numbers = count()


@dataclass(frozen=True)
class Report:
    """What a role reported: the phase it reached and plain data."""

    phase: str
    data: dict[str, Any]


def report(phase: str, **data: Any) -> None:
    """Tell the supervisor; without one (the process was started by hand) nothing happens.

    Args:
        phase: "ready", "epoch", "done", …; deadlines refer to it.
        data: JSON-able values.

    Raises:
        TypeError: data that is not JSON.
    """
    if VARIABLE not in os.environ:
        return
    text = json.dumps({"phase": phase, "data": data}).encode("ascii")
    chunks = [text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK)]
    with _lock:
        sys.stdout.flush()
        number = f"{os.getpid()}.{next(_numbers)}"
        for index, chunk in enumerate(chunks, start=1):
            head = f"{number} {index}/{len(chunks)} ".encode("ascii")
            _write(_OPENING + head + chunk + b"\x1e\n")


def _write(frame: bytes) -> None:
    while frame:
        frame = frame[os.write(1, frame) :]


class ReportReader:
    """Splits the bytes of one role's output into log text and reports, whatever the reads hold."""

    def __init__(self, log: Callable[[bytes], object]) -> None:
        self._log = log
        self._rest = b""
        self._chunks: dict[bytes, dict[int, bytes]] = {}

    def feed(self, data: bytes) -> list[Report]:
        """Take the next bytes; log text goes to ``log``, complete reports are returned."""
        data = self._rest + data
        reports = []
        at = 0
        for match in _FRAME.finditer(data):
            self._log(data[at : match.start()])
            at = match.end()
            found = self._chunk(match)
            if found is not None:
                reports.append(found)
        keep = _opening_at(data, at)
        self._log(data[at:keep])
        self._rest = data[keep:]
        return reports

    def close(self) -> None:
        """The output has ended: what looked like the start of a report was log text."""
        self._log(self._rest)
        self._rest = b""

    def _chunk(self, match: re.Match[bytes]) -> Report | None:
        number, index, total, chunk = match.groups()
        chunks = self._chunks.setdefault(number, {})
        chunks[int(index)] = chunk
        if len(chunks) < int(total):
            return None
        del self._chunks[number]
        try:
            content = json.loads(b"".join(chunks[key] for key in sorted(chunks)))
            return Report(str(content["phase"]), dict(content["data"]))
        except (ValueError, KeyError, TypeError):
            self._log(match.group())  # somebody else's text in our frame: show it
            return None


def _opening_at(data: bytes, start: int) -> int:
    """Where an unfinished frame may begin in ``data[start:]``; its length if nowhere."""
    at = data.find(_OPENING, start)
    while at >= 0:
        if len(data) - at < _LONGEST_FRAME:
            return at
        at = data.find(_OPENING, at + 1)
    for size in range(min(len(_OPENING) - 1, len(data) - start), 0, -1):
        if data.endswith(_OPENING[:size]):
            return len(data) - size
    return len(data)
