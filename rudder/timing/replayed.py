"""The calibrated model behind the replay engine's clock."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rudder.replay.clock import TimeModel
from rudder.replay.engine import MakeTime
from rudder.scenario import Scenario
from rudder.timing.machine import Machine
from rudder.timing.phases import Load, phases
from rudder.timing.traffic import Traffic
from rudder.trace import Trace, TraceRow


class CalibratedTime(TimeModel):
    """Seconds of replayed minibatches from their counts; recorded seconds play no part.

    A trace does not hold the bytes of sampling: they are taken as remote input nodes times
    :attr:`Machine.sampling_row_bytes`.

    Args:
        machine: calibration.
        trace: replayed.
        scenario: of the replay.
        gradient_bytes: that one rank sends per minibatch.
    """

    barrier = True

    def __init__(
        self, machine: Machine, trace: Trace, scenario: Scenario, gradient_bytes: float = 0.0
    ) -> None:
        self._machine, self._scenario = machine, scenario
        self._row_bytes = float(trace.manifest.feature_bytes)
        self._ranks = trace.manifest.ranks
        self._gradients = gradient_bytes
        traffic = Traffic.of(trace)
        self._contention = traffic.contention()
        # Bytes of sampling per remote node: with depth, those of the mean rank count for all.
        rows = traffic.rows.sum(axis=1)
        own = rows if scenario.prefetch_depth == 0 else np.full_like(rows, rows.mean())
        even = np.divide(own, rows, out=np.ones_like(rows), where=rows > 0)
        self._sampling_row_bytes = even * machine.sampling_row_bytes

    def sample_s(self, rank: int, traced: TraceRow) -> float:
        return self._phases(rank, traced, 0)[0]

    def fetch_s(self, rank: int, traced: TraceRow, fetched: int) -> float:
        return self._phases(rank, traced, fetched)[1]

    def compute_s(self, rank: int, traced: TraceRow) -> float:
        return self._phases(rank, traced, 0)[2]

    def _phases(self, rank: int, traced: TraceRow, fetched: int) -> tuple[float, float, float]:
        remote = len(traced.remote_ids)
        load = Load(
            nodes=_number(traced.local + remote),
            fetched=_number(fetched),
            sampling_bytes=_number(remote * self._sampling_row_bytes[rank]),
            gradient_bytes=_number(self._gradients),
            row_bytes=self._row_bytes,
            rate=_number(self._scenario.rate_of(traced.epoch)),
            contention=_number(self._contention[rank]),
        )
        found = phases(self._machine, load, self._ranks, self._scenario.prefetch_depth)
        return float(found.sample_s), float(found.fetch_s), float(found.compute_s)


def _number(value: float) -> npt.NDArray[np.float64]:
    return np.asarray(value, dtype=np.float64)


def calibrated_time(machine: Machine) -> MakeTime:
    """What ``ReplayEngine(make_time=…)`` takes."""

    def make(trace: Trace, scenario: Scenario) -> CalibratedTime:
        return CalibratedTime(
            machine, trace, scenario, machine.gradient_bytes(trace.manifest.ranks)
        )

    return make
