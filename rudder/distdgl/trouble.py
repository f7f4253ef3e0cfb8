"""What a run felt of its links, clocks and disk without ending: counted, so that it can be seen."""

from __future__ import annotations

import logging
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_log = logging.getLogger(__name__)

STALLED_S = 2.0
"""A pull that takes so long has met a link, or a host, that was away."""
SLOW_S, SLOWER = 0.25, 10.0
"""A pull is slow that takes at least so long, and so many times the seconds per row of this
trainer's quick pulls."""
_QUICK = 0.1
"""Quick pulls: those up to this quantile. A link that was slow all along has no slow pull."""
_JUMP_S = 1.0
"""By more than this a clock is set, by less it is adjusted."""
BYTES_PER_MINIBATCH = 3000
"""Of a trainer, in all files of a run: a row and, at most, a decision, both twice."""


def pulls_in_trouble(minibatches: pa.Table) -> list[dict[str, float]]:
    """Pulls of each rank that stalled or were slow: their counts and seconds.

    Args:
        minibatches: table of :data:`rudder.result.MINIBATCH_SCHEMA`.
    """
    found = []
    for rank in range((pc.max(minibatches.column("rank")).as_py() or 0) + 1):
        own = minibatches.filter(pc.equal(minibatches.column("rank"), rank))
        seconds = own.column("fetch_s").to_numpy()
        pace = seconds / np.maximum(own.column("fetched").to_numpy(), 1)
        quick = float(np.quantile(pace, _QUICK)) if pace.size else 0.0
        stalled = seconds >= STALLED_S
        slow = ~stalled & (seconds >= SLOW_S) & (pace >= SLOWER * quick)
        found.append(
            {
                "stalled": int(stalled.sum()),
                "stalled_s": float(seconds[stalled].sum()),
                "slow": int(slow.sum()),
                "slow_s": float(seconds[slow].sum()),
            }
        )
    return found


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
