"""The record store that both ledgers share: one record per remote node seen, found by id."""

from __future__ import annotations

import numpy as np

from rudder.buffer.kernels import records as kernels
from rudder.buffer.kernels.chains import CHAIN_WIDTH
from rudder.errors import BufferUseError
from rudder.policies.base import Floats, Ids

_LINE = 64  # bytes of a cache line, and of a record
_WIDTH = 8  # columns of a record


def _records(rows: int) -> Ids:
    """Uninitialised int64 ``[rows, 8]`` whose rows do not straddle cache lines."""
    raw = np.empty(rows * _LINE + _LINE, np.uint8)
    start = -raw.ctypes.data % _LINE
    return raw[start : start + rows * _LINE].view(np.int64).reshape(rows, _WIDTH)


def _slots_for(rows: int) -> int:
    """Size of a table for so many records: a power of two, at most half full."""
    return 1 << (2 * rows - 1).bit_length()


def _empty_table(rows: int) -> Ids:
    """An id map for so many records.

    Written once, not ``np.zeros``: only of ``np.empty`` numpy asks the kernel for huge pages, and a
    look-up somewhere in a large map else waits for the page's address too.
    """
    table = np.empty(_slots_for(rows), np.int64)
    table.fill(0)
    return table


def grown_chains(chains: Ids, rows: int) -> Ids:
    """Chains of at least so many rows, those given in front; grows by doubling."""
    if rows <= len(chains):
        return chains
    grown = np.zeros((max(rows, 2 * len(chains)), CHAIN_WIDTH), np.int64)
    grown[: len(chains)] = chains
    return grown


class Records:
    """Records, id map and state of a ledger; grows by doubling with the remote nodes seen."""

    def __init__(self, capacity: int) -> None:
        # Memory that is never touched is never taken: with a buffer of a quarter of the halo, the
        # usual size, the records of all halo nodes fit without growing.
        rows = max(4 * capacity, 1024)
        self.rec = _records(rows)
        self.val: Floats = self.rec.view(np.float64)
        self.table = _empty_table(rows)
        self.state: Ids = np.zeros(kernels.SCALARS, np.int64)

    def reserve(self, new: int) -> None:
        """Make room for ``new`` more records."""
        used = int(self.state[kernels.RECORDS])
        if used + new <= len(self.rec):
            return
        rows = max(2 * len(self.rec), used + new)
        grown = _records(rows)
        grown[:used] = self.rec[:used]
        self.rec = grown
        self.val = grown.view(np.float64)
        self.table = _empty_table(rows)
        kernels.rehash(self.table, self.rec, used)

    def take_over(self, other: Records) -> None:
        """Become a copy of the records of a ledger of the same capacity."""
        used = int(other.state[kernels.RECORDS])
        if len(self.rec) != len(other.rec):
            self.rec = _records(len(other.rec))
            self.val = self.rec.view(np.float64)
            self.table = np.empty_like(other.table)
        self.rec[:used] = other.rec[:used]
        self.table[:] = other.table
        self.state[:] = other.state

    def look_up(self, ids: Ids) -> Ids:
        """Record of each id, -1 = none."""
        found = np.empty(len(ids), np.int64)
        kernels.look_up(self.table, self.rec, ids, found)
        return found


def check_order(ids: Ids) -> None:
    """Check the remote ids of a minibatch.

    Raises:
        BufferUseError: ids that are negative, not distinct or not ascending.
    """
    if not kernels.ascending(ids):
        raise BufferUseError(
            f"the {len(ids)} remote ids of a minibatch must be distinct, ascending and at "
            "least 0; pass np.unique(ids)"
        )
