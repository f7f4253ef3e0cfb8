"""Node numbers as written in a file -> 0..N-1."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rudder.errors import DatasetError

Int64s = npt.NDArray[np.int64]


class IdMap:
    """Which node a written number means.

    With as many rows of features or labels as ``rows``, numbers 0..rows-1 are row numbers; numbers
    beyond that are ranked (the smallest is row 0), provided that there are exactly ``rows`` of
    them. Without ``rows`` the numbers are always ranked. Ranking numbers that are 0..N-1 already
    changes nothing.

    Attributes:
        nodes: number of nodes N.
        written: int64 ``[N]`` ascending: the number written for each node; None: its own.

    Raises:
        DatasetError: a negative number, or numbers that do not fit the rows.
    """

    def __init__(self, src: Int64s, dst: Int64s, rows: int | None, where: str) -> None:
        low = int(min(src.min(initial=0), dst.min(initial=0)))
        high = int(max(src.max(initial=-1), dst.max(initial=-1)))
        if low < 0:
            raise DatasetError(f"{where}: node numbers must not be negative, found {low}")
        self.written: Int64s | None = None
        if rows is not None and high < rows:
            self.nodes = rows
            return
        distinct = _distinct(src, dst, high)
        self.nodes = int(distinct.size)
        if rows is not None and distinct.size != rows:
            raise DatasetError(
                f"{where}: edge end {high} lies outside the {rows} rows of features or labels, "
                f"and the {distinct.size} distinct node numbers cannot be their ranks either"
            )
        if high + 1 != distinct.size:
            self.written = distinct

    def __call__(self, numbers: Int64s, where: str) -> Int64s:
        """The nodes that ``numbers`` mean.

        Raises:
            DatasetError: a number that no node has.
        """
        if self.written is None:
            at, known = numbers, (numbers >= 0) & (numbers < self.nodes)
        else:
            at = np.searchsorted(self.written, numbers)
            known = self.written[np.minimum(at, self.nodes - 1)] == numbers
        if not known.all():
            first = int(np.flatnonzero(~known)[0])
            raise DatasetError(
                f"{where}: {np.count_nonzero(~known)} rows name a node that the graph does not "
                f"have (first: {numbers[first]})"
            )
        return at


def _distinct(src: Int64s, dst: Int64s, high: int) -> Int64s:
    """Distinct numbers, ascending; by marking where the range allows, else by sorting."""
    if high < max(4 * src.size, 1 << 20):
        seen = np.zeros(high + 1, dtype=np.bool_)
        seen[src] = seen[dst] = True
        return np.flatnonzero(seen)
    return np.union1d(src, dst)
