"""Modelled time: what a replayed minibatch takes, and when one trainer's pulls then happen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

from rudder.result import ID_BYTES
from rudder.scenario import Scenario
from rudder.trace import TraceRow

UNSHAPED_MBIT = 10_000.0
"""What :class:`RecordedTime` takes an unshaped link (rate 0) for, Mbit/s."""
ROUND_TRIP_S = 0.0005
"""What :class:`RecordedTime` adds to each pull that fetches anything."""


class TimeModel(ABC):
    """Seconds of a replayed minibatch. One object serves all trainers of a run.

    Attributes:
        barrier: a minibatch ends for all trainers when the slowest has computed: the gradient
            exchange of DDP, where :meth:`compute_s` has no waiting for others in it.
    """

    barrier: bool = False

    def sample_s(self, rank: int, traced: TraceRow) -> float:
        """Seconds of sampling; as recorded, unless overridden."""
        return traced.sample_s

    @abstractmethod
    def fetch_s(self, rank: int, traced: TraceRow, fetched: int) -> float:
        """Seconds from the plan of a pull of ``fetched`` rows to its return."""

    def compute_s(self, rank: int, traced: TraceRow) -> float:
        """Seconds of forward, backward and step; as recorded, unless overridden."""
        return traced.compute_s


class RecordedTime(TimeModel):
    """The plainest model: recorded seconds of sampling and computing, and pulls at the link's rate.

    A pull takes a round trip and its bytes, of rows and of the ids that ask for them, at the rate
    of the scenario in that epoch; a minibatch that fetches nothing takes none. Links are shared
    with nobody. Recorded computing holds the waiting for other trainers as it was in the recorded
    run, hence no barrier beside it. A trace of the ``sampler`` has no seconds: only pulls take
    time.

    Args:
        scenario: of the replay.
        row_bytes: of one feature row.
    """

    def __init__(self, scenario: Scenario, row_bytes: int) -> None:
        self._scenario = scenario
        self._bits = 8.0 * (row_bytes + ID_BYTES)

    def fetch_s(self, rank: int, traced: TraceRow, fetched: int) -> float:
        if not fetched:
            return 0.0
        rate = (self._scenario.rate_of(traced.epoch) or UNSHAPED_MBIT) * 1e6
        return ROUND_TRIP_S + fetched * self._bits / rate


class TrainerClock:
    """When one trainer's pulls and training happen, as in :mod:`rudder.distdgl.pipeline`.

    Pulls follow each other in one thread. A pull starts once training has taken over the
    minibatch ``depth`` before it, in the same epoch; with depth 0 once training has ended the one
    before. For each minibatch, in this order: :meth:`begin`, :meth:`advance` by all that passes
    until the pull has returned, :meth:`take_over` and :meth:`train`.

    Attributes:
        now: seconds, of the pulling thread.
        trained: seconds, when the last minibatch was trained.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._taken: deque[float] = deque(maxlen=max(depth, 1))
        self.now = self.trained = 0.0

    def copy(self) -> TrainerClock:
        """The same moment, to be advanced apart."""
        other = TrainerClock(self._depth)
        other._taken = self._taken.copy()
        other.now, other.trained = self.now, self.trained
        return other

    def begin_epoch(self, at: float) -> None:
        """Nothing is pulled ahead over the start of an epoch."""
        self.now = self.trained = max(at, self.now)
        self._taken.clear()

    def begin(self) -> None:
        """The pulling thread turns to the next minibatch as soon as it may."""
        if self._depth == 0:
            self.now = max(self.now, self.trained)
        elif len(self._taken) == self._depth:
            self.now = max(self.now, self._taken[0])

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def take_over(self) -> float:
        """Training takes the pulled minibatch; returns how long it waited for it."""
        taken = max(self.now, self.trained)
        self._taken.append(taken)
        return taken - self.trained

    @property
    def taken(self) -> float:
        """When training took over the last minibatch."""
        return self._taken[-1]

    def train(self, until: float) -> None:
        self.trained = until
