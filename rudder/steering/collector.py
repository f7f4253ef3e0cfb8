"""The metrics collector: sums the rows between two observations into one window."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rudder.observation import Window

if TYPE_CHECKING:
    from rudder.result import MinibatchRow


class Collector:
    """Accumulates rows in constant time and memory, and closes a window on request.

    Rows come from the pulling thread; the seconds of training come later from the training thread
    and count in the window that is open when they arrive.

    Args:
        row_bytes: bytes of one feature row.
    """

    def __init__(self, row_bytes: int) -> None:
        self._row_bytes = row_bytes
        self._lock = threading.Lock()
        self._compute_s = self._stall_s = 0.0
        self._before: tuple[int, int, int, int] | None = None
        self._clear()

    def _clear(self) -> None:
        self._minibatches = self._sampled = self._hits = self._fetched = self._replaced = 0
        self._sample_s = self._fetch_s = 0.0
        self._stale_share = self._occupancy = 0.0

    def add(self, row: MinibatchRow) -> None:
        self._minibatches += 1
        self._sampled += row.remote_sampled
        self._hits += row.hits
        self._fetched += row.fetched
        self._replaced += row.replaced
        self._sample_s += row.sample_s
        self._fetch_s += row.fetch_s
        self._stale_share = row.stale_share
        self._occupancy = row.occupancy

    def trained(self, compute_s: float, stall_s: float) -> None:
        with self._lock:
            self._compute_s += compute_s
            self._stall_s += stall_s

    def to_state(self) -> dict[str, Any]:
        """Everything as plain values, while no row is being added."""
        state = {name: value for name, value in vars(self).items() if name != "_lock"}
        return {name.removeprefix("_"): value for name, value in state.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`to_state` returned, also after JSON made a list of the tuple."""
        for name, value in state.items():
            setattr(self, f"_{name}", tuple(value) if isinstance(value, list) else value)

    def close_window(self) -> Window:
        """What happened since the last call; at least one row must have been added."""
        with self._lock:
            compute_s, self._compute_s = self._compute_s, 0.0
            stall_s, self._stall_s = self._stall_s, 0.0
        now = (self._minibatches, self._sampled, self._hits, self._fetched)
        before = self._before or now
        window = Window(
            minibatches=self._minibatches,
            hit_rate=hit_rate(self._hits, self._sampled),
            hit_rate_change=hit_rate_change(before[2], before[1], self._hits, self._sampled),
            remote_sampled=self._sampled,
            fetched=self._fetched,
            bytes_fetched=self._fetched * self._row_bytes,
            communication_change=relative_change(
                before[3] / before[0], self._fetched / self._minibatches
            ),
            replaced=self._replaced,
            stale_share=self._stale_share,
            occupancy=self._occupancy,
            sample_s=self._sample_s,
            fetch_s=self._fetch_s,
            compute_s=compute_s,
            stall_s=stall_s,
        )
        self._before = now
        self._clear()
        return window


def hit_rate(hits: int, sampled: int) -> float:
    """Share 0..1 of the sampled remote nodes found in the buffer; 0 when none was sampled."""
    return hits / sampled if sampled else 0.0


def hit_rate_change(hits_before: int, before: int, hits_after: int, after: int) -> float:
    """Change of the hit rate; 0 when one side sampled no remote node and so has no rate."""
    if not before or not after:
        return 0.0
    return hits_after / after - hits_before / before


def relative_change(before: float, after: float) -> float:
    """Relative change of a count of rows; below one row before, against one row."""
    return (after - before) / max(before, 1.0)
