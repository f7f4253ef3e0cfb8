"""Where a role's output goes: its log file, and line by line to whoever asked for all (-vv)."""

from __future__ import annotations

import logging
from io import FileIO

logger = logging.getLogger(__name__)

_LONGEST_LINE = 1 << 16


class RoleLog:
    """Writes what it is called with to ``file``; whole lines are told with the role's name too."""

    def __init__(self, name: str, file: FileIO) -> None:
        self._name = name
        self._file = file
        self._line = b""

    def __call__(self, data: bytes) -> None:
        rest = data
        while rest:
            rest = rest[self._file.write(rest) :]
        if logger.isEnabledFor(logging.DEBUG):
            self._tell(data)

    def _tell(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > _LONGEST_LINE:
            lines.append(self._line)
            self._line = b""
        for line in lines:
            logger.debug("%s | %s", self._name, line.decode(errors="replace").rstrip())
