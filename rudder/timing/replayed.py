"""The calibrated model behind the replay engine's clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rudder.replay.clock import TimeModel
from rudder.replay.engine import MakeTime
from rudder.scenario import Scenario
from rudder.timing.machine import Machine
from rudder.timing.phases import Load, phases
from rudder.timing.traffic import Traffic
from rudder.trace import Trace, TraceRow

_ANY, _MANY = 1e-9, 1e7
"""Rows of which next to none, and all but a bucketful, are on the link."""
_KEPT = 4096


class CalibratedTime(TimeModel):
    """Seconds of replayed minibatches from their counts; recorded seconds play no part.

    A trace does not hold the bytes of sampling: they are taken as remote input nodes times
    :attr:`Machine.sampling_row_bytes`.

    Args:
        machine: calibration.
        trace: replayed.
        traffic: of the trace.
        scenario: of the replay.
        gradient_bytes: that one rank sends per minibatch.
    """

    barrier = True

    def __init__(
        self,
        machine: Machine,
        trace: Trace,
        traffic: Traffic,
        scenario: Scenario,
        gradient_bytes: float = 0.0,
    ) -> None:
        self._machine, self._scenario = machine, scenario
        self._row_bytes = float(trace.manifest.feature_bytes)
        self._ranks = trace.manifest.ranks
        self._gradients = gradient_bytes
        self._contention = traffic.contention()
        self._kept: dict[tuple[int, int], _Minibatch] = {}
        # Bytes of sampling per remote node: with depth, those of the mean rank count for all.
        rows = traffic.rows.sum(axis=1)
        own = rows if scenario.prefetch_depth == 0 else np.full_like(rows, rows.mean())
        even = np.divide(own, rows, out=np.ones_like(rows), where=rows > 0)
        self._sampling_row_bytes = even * machine.sampling_row_bytes

    def sample_s(self, rank: int, traced: TraceRow) -> float:
        return self._minibatch(rank, traced).sample_s

    def fetch_s(self, rank: int, traced: TraceRow, fetched: int) -> float:
        return self._minibatch(rank, traced).fetch_s(fetched)

    def compute_s(self, rank: int, traced: TraceRow) -> float:
        return self._minibatch(rank, traced).compute_s

    def _minibatch(self, rank: int, traced: TraceRow) -> _Minibatch:
        """Kept for a while: an oracle asks for the same minibatches over and over."""
        key = rank, traced.step
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = self._modelled(rank, traced)
            if len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
        return found

    def _modelled(self, rank: int, traced: TraceRow) -> _Minibatch:
        remote = len(traced.remote_ids)
        load = Load(
            nodes=_number(traced.local + remote),
            fetched=_number([0, _ANY, _MANY, 2 * _MANY]),
            sampling_bytes=_number(remote * self._sampling_row_bytes[rank]),
            gradient_bytes=_number(self._gradients),
            row_bytes=self._row_bytes,
            rate=_number(self._scenario.rate_of(traced.epoch)),
            contention=_number(self._contention[rank]),
        )
        found = phases(self._machine, load, self._ranks, self._scenario.prefetch_depth)
        none, some, many, twice = np.broadcast_to(found.fetch_s, 4).tolist()
        row_s = (twice - many) / _MANY
        return _Minibatch(
            float(found.sample_s), float(found.compute_s), none, some, row_s,
            some + _MANY * row_s - many,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Minibatch:
    """Seconds of one minibatch; those of its pull are a line in the rows, but for the first ones.

    Attributes:
        none_s, some_s: of a pull of nothing, and of one of next to nothing.
        row_s: of a row.
        bucket_s: of the rows that the link's bucket lets pass at once.
    """

    sample_s: float
    compute_s: float
    none_s: float
    some_s: float
    row_s: float
    bucket_s: float

    def fetch_s(self, fetched: int) -> float:
        if not fetched:
            return self.none_s
        return self.some_s + max(0.0, fetched * self.row_s - self.bucket_s)


def _number(value: float | list[float]) -> npt.NDArray[np.float64]:
    return np.asarray(value, dtype=np.float64)


def calibrated_time(machine: Machine) -> MakeTime:
    """What ``ReplayEngine(make_time=…)`` takes; a trace is looked through once, for all replays."""
    last: list[tuple[Trace, Traffic]] = []

    def make(trace: Trace, scenario: Scenario) -> CalibratedTime:
        if not last or last[0][0] is not trace:
            last[:] = [(trace, Traffic.of(trace))]
        gradients = machine.gradient_bytes(trace.manifest.ranks)
        return CalibratedTime(machine, trace, last[0][1], scenario, gradients)

    return make
