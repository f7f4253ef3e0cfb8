"""Seconds of a run, from what it counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rudder.errors import CalibrationError
from rudder.result import RunResult
from rudder.timing.machine import Machine
from rudder.timing.phases import phases
from rudder.timing.recurrence import run_epoch
from rudder.timing.rounds import epochs_of, row_bytes_of
from rudder.timing.traffic import Traffic

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """Modelled seconds of a run.

    Attributes:
        epochs: seconds of each.
        stall_s: over all ranks and minibatches.
    """

    epochs: Sequence[float]
    stall_s: float

    @property
    def epoch_seconds(self) -> float | None:
        """Mean over the epochs but the first, as in a run's summary."""
        return float(np.mean(self.epochs[1:])) if len(self.epochs) > 1 else None


def predict(machine: Machine, run: RunResult, traffic: Traffic) -> Prediction:
    """Seconds of a run from its counted rows and bytes; none of its measured seconds is read.

    Args:
        traffic: of the same graph and partition.

    Raises:
        CalibrationError: other ranks than ``traffic``, or ranks with unequal minibatches.
    """
    scenario, row_bytes, contention = run.scenario, row_bytes_of(run), traffic.contention()
    depth = scenario.prefetch_depth
    seconds, stalled = [], 0.0
    for rows in epochs_of(run):
        ranks = len(rows.nodes)
        if ranks != len(contention):
            raise CalibrationError(
                f"{run.run_dir} has {ranks} ranks, the trace {len(contention)}: take one of the "
                "same partition"
            )
        load = rows.load(row_bytes, scenario.rate_of(rows.epoch), contention, depth)
        found = run_epoch(phases(machine, load, ranks, depth), depth)
        seconds.append(found.seconds)
        stalled += float(found.stall_s.sum())
    return Prediction(tuple(seconds), stalled)
