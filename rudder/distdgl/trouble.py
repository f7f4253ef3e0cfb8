"""What a run felt of its links, clocks and disk without ending: counted, so that it can be seen."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_log = logging.getLogger(__name__)

STALLED_S = 2.0
"""What takes so long, and so many times what is usual, has met a link, or a host, that was away."""
SLOW_S, SLOWER = 0.25, 10.0
"""A pull is slow that takes at least so long, and so many times the seconds per row of this
trainer's quick pulls."""
_QUICK = 0.1
"""Quick pulls: those up to this quantile. A link that was slow all along has no slow pull."""
_JUMP_S = 1.0
"""By more than this a clock is set, by less it is adjusted."""
BYTES_PER_MINIBATCH = 3000
"""Of a trainer, in all files of a run: a row and, at most, a decision, both twice."""


def trouble_of_links(
    minibatches: pa.Table, epochs: Sequence[Sequence[Mapping[str, Any]]]
) -> list[dict[str, float]]:
    """What each rank waited for links: counts and seconds.

    ``stalled``: minibatches whose sampling, pull or computing with its exchange of gradients, and
    pauses between epochs, that took far longer than usual; whatever went over the link when it was
    away waits. ``slow``: pulls that were slow without stalling.

    Args:
        minibatches: table of :data:`rudder.result.MINIBATCH_SCHEMA`.
        epochs: of each rank its epochs, with ``pause_s``, seconds between the one before and it.
    """
    found = []
    for rank, own_epochs in enumerate(epochs):
        own = minibatches.filter(pc.equal(minibatches.column("rank"), rank))
        fetch, fetched, *others = (
            own.column(name).to_numpy() for name in ("fetch_s", "fetched", "sample_s", "compute_s")
        )
        pace = fetch / np.maximum(fetched, 1)
        quick = float(np.quantile(pace, _QUICK)) if pace.size else 0.0
        slower = pace >= SLOWER * quick
        waited = np.where((fetch >= STALLED_S) & slower, fetch, 0.0)
        slow = (fetch >= SLOW_S) & (fetch < STALLED_S) & slower
        for seconds in others:
            waited = np.maximum(waited, _stalls(seconds))
        pauses = _stalls(np.array([epoch.get("pause_s", 0.0) for epoch in own_epochs[1:]]))
        found.append(
            {
                "stalled": int((waited > 0).sum() + (pauses > 0).sum()),
                "stalled_s": float(waited.sum() + pauses.sum()),
                "slow": int(slow.sum()),
                "slow_s": float(fetch[slow].sum()),
            }
        )
    return found


def _stalls(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The seconds that are stalls; 0 elsewhere."""
    usual = float(np.median(seconds)) if seconds.size else 0.0
    return np.where((seconds >= STALLED_S) & (seconds >= SLOWER * usual), seconds, 0.0)


class Clock:
    """Finds out when the wall clock is set, by one that cannot be.

    Attributes:
        jumps: seconds of each jump that was seen, forward above 0.
    """

    def __init__(self) -> None:
        self.jumps: list[float] = []
        self._offset = _offset()

    def look(self) -> None:
        """Cheap; a jump is found by the first look after it."""
        jump = _offset() - self._offset
        if abs(jump) > _JUMP_S:
            self._offset += jump
            self.jumps.append(round(jump, 3))
            _log.warning("the clock was set by %+.0f s; no seconds are read off it", jump)


def _offset() -> float:
    return time.time() - time.monotonic()


@dataclass
class Room:
    """Warns, once, that the disk of a run has less room than the run may need."""

    folder: Path
    told: bool = field(default=False)

    def look(self, minibatches: int, checkpoints: int = 0) -> None:
        """
        Args:
            minibatches: to come, over all trainers.
            checkpoints: bytes of those that are to be kept.
        """
        need = minibatches * BYTES_PER_MINIBATCH + checkpoints
        try:
            free = shutil.disk_usage(self.folder).free
        except OSError:  # whoever writes there next says so
            return
        if free < need and not self.told:
            self.told = True
            _log.warning(
                "the disk that holds %s has %.1f MB left, and the run may need %.1f MB more: make "
                "room, or it ends without a result", self.folder, free / 1e6, need / 1e6,
            )  # fmt: skip
