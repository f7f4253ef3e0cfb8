"""Minibatches of a trace, one at a time, with sight of those that follow."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator

from rudder.trace import TraceRow


class Ahead:
    """Hands out rows in order; holds only those that were looked at ahead.

    Args:
        rows: of one rank.
        length: rows that are handed out at most.
    """

    def __init__(self, rows: Iterator[TraceRow], length: int) -> None:
        self._rows = itertools.islice(rows, length)
        self._held: deque[TraceRow] = deque()

    def next(self) -> TraceRow:
        """The next row; there must be one."""
        return self._held.popleft() if self._held else next(self._rows)

    def look(self) -> Iterator[TraceRow]:
        """The rows that :meth:`next` will hand out, without handing them out."""
        for index in itertools.count():
            if index == len(self._held):
                row = next(self._rows, None)
                if row is None:
                    return
                self._held.append(row)
            yield self._held[index]
