"""The recurrence: by hand, against the replay's clock, and what must always hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rudder.replay.clock import TrainerClock
from rudder.timing.phases import Phases
from rudder.timing.recurrence import run_epoch

SECONDS = arrays(np.float64, (3, 2, 6), elements=st.floats(0, 8).map(lambda s: round(s * 4) / 4))

# Two ranks, three minibatches: rank 0 samples and pulls in 3 s (1 + 2), rank 1 in 2 s (1 + 1);
# both compute for 2 s, rank 1's last minibatch for 5 s.
SAMPLE = np.ones((2, 3))
FETCH = np.array([[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
COMPUTE = np.array([[2.0, 2.0, 2.0], [2.0, 2.0, 5.0]])


@pytest.mark.parametrize(
    ("depth", "trained", "stalls"),
    [
        # Rank 0 takes over at 3, 8, 13; trained at 5, 10. Last: rank 1 takes over at 12, until 17.
        (0, [5, 10, 17], [[3, 3, 3], [2, 2, 2]]),
        # Pulls begin when the minibatch before was taken. Rank 0: pulled at 3, 6, 9, trained at 5,
        # 8, and 9 + 2 = 11. Rank 1: pulled 2, 4, 7 (taken: 2, 5, 8); the last until 8 + 5 = 13.
        (1, [5, 8, 13], [[3, 1, 1], [2, 0, 0]]),
        # Pulls follow each other: rank 0 at 3, 6, 9, as before; rank 1 at 2, 4, 6.
        (2, [5, 8, 13], [[3, 1, 1], [2, 0, 0]]),
    ],
)
def test_by_hand(depth: int, trained: list[float], stalls: list[list[float]]) -> None:
    found = run_epoch(Phases(SAMPLE, FETCH, COMPUTE), depth)
    assert found.trained.tolist() == trained
    assert found.stall_s.tolist() == stalls
    assert found.seconds == trained[-1]


def test_depth_is_what_pulls_run_ahead() -> None:
    """One rank; the first minibatch trains for 10 s while others are pulled, 1 s each."""
    ones = np.ones((1, 4))
    compute = np.array([[10.0, 1.0, 1.0, 1.0]])
    phases = Phases(0 * ones, np.array([[1.0, 1.0, 1.0, 6.0]]), compute)
    # depth 1: pulls begin at 0, 1, 11, 12: the last is there at 18, trained at 19
    assert run_epoch(phases, 1).trained.tolist() == [11, 12, 13, 19]
    # depth 2: pulls begin at 0, 1, 2, 11: at 17, trained at 18
    assert run_epoch(phases, 2).trained.tolist() == [11, 12, 13, 18]
    # depth 3: 0, 1, 2, 3: at 9, never waited for
    assert run_epoch(phases, 3).trained.tolist() == [11, 12, 13, 14]


@given(SECONDS, st.integers(0, 4))
def test_the_same_as_the_clock_of_a_replay(seconds: np.ndarray, depth: int) -> None:
    phases = Phases(*seconds)
    found = run_epoch(phases, depth)
    clocks = [TrainerClock(depth) for _ in range(2)]
    for i in range(6):
        ends = []
        for rank, clock in enumerate(clocks):
            clock.begin()
            clock.advance(phases.sample_s[rank, i] + phases.fetch_s[rank, i])
            assert clock.take_over() == found.stall_s[rank, i]
            ends.append(clock.taken + phases.compute_s[rank, i])
        for clock in clocks:
            clock.train(max(ends))
        assert max(ends) == found.trained[i]


@given(SECONDS)
def test_deeper_is_never_slower(seconds: np.ndarray) -> None:
    ends = [run_epoch(Phases(*seconds), depth).seconds for depth in range(5)]
    assert ends == sorted(ends, reverse=True)


@given(SECONDS, st.integers(0, 4), st.integers(0, 2), st.integers(0, 1), st.integers(0, 5))
def test_nothing_is_gained_by_a_longer_phase(
    seconds: np.ndarray, depth: int, phase: int, rank: int, i: int
) -> None:
    before = run_epoch(Phases(*seconds), depth).seconds
    longer = seconds.copy()
    longer[phase, rank, i] += 1.0
    assert before <= run_epoch(Phases(*longer), depth).seconds <= before + 1.0
