"""When pulls happen on the modelled clock, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rudder.replay.clock import ROUND_TRIP_S, UNSHAPED_MBIT, RecordedTime, TrainerClock
from rudder.scenario import Scenario
from rudder.trace import TraceRow


def schedule(depth: int, pull_s: float, compute_s: float, minibatches: int) -> list[list[float]]:
    """Per minibatch: when its pull begins, when training takes it, how long training waited."""
    clock, rows = TrainerClock(depth), []
    for _ in range(minibatches):
        clock.begin()
        begun = clock.now
        clock.advance(pull_s)
        waited = clock.take_over()
        rows.append([begun, clock.taken, waited])
        clock.train(clock.taken + compute_s)
    return rows


@pytest.mark.parametrize(
    ("depth", "pull_s", "compute_s", "expected"),
    [
        # In line: pull 3 s, train 2 s, in turn.
        (0, 3, 2, [[0, 3, 3], [5, 8, 3], [10, 13, 3]]),
        # One ahead, pulls are slower: they follow each other, training waits 1 s for each.
        (1, 3, 2, [[0, 3, 3], [3, 6, 1], [6, 9, 1], [9, 12, 1]]),
        # One ahead, training is slower: pull i begins when training takes i - 1 over.
        (1, 2, 5, [[0, 2, 2], [2, 7, 0], [7, 12, 0], [12, 17, 0]]),
        # Two ahead: pull i begins when training takes i - 2 over, at 2, 7, 12.
        (2, 2, 5, [[0, 2, 2], [2, 7, 0], [4, 12, 0], [7, 17, 0], [12, 22, 0]]),
    ],
)
def test_pulls_run_so_far_ahead(
    depth: int, pull_s: float, compute_s: float, expected: list[list[float]]
) -> None:
    assert schedule(depth, pull_s, compute_s, len(expected)) == expected


def test_nothing_is_pulled_over_the_start_of_an_epoch() -> None:
    clock = TrainerClock(depth=2)
    for _ in range(3):
        clock.begin()
        clock.advance(1)
        clock.take_over()
        clock.train(clock.taken + 4)
    assert clock.trained == 13
    clock.begin_epoch(15)
    clock.begin()
    assert clock.now == 15
    clock.advance(1)
    assert clock.take_over() == 1


def test_a_copy_goes_its_own_way() -> None:
    clock = TrainerClock(depth=1)
    clock.begin()
    clock.advance(1)
    clock.take_over()
    clock.train(3)
    other = clock.copy()
    other.begin()
    other.advance(10)
    other.take_over()
    assert (clock.now, clock.taken, clock.trained) == (1, 1, 3)
    assert (other.now, other.taken) == (11, 11)


def test_recorded_time_is_what_was_recorded_and_bytes_over_the_rate() -> None:
    scenario = Scenario.make(rate=8.0, rate_at={1: 4.0, 2: 0.0}, epochs=3)
    time = RecordedTime(scenario, row_bytes=92)  # 100 bytes with the id
    rows = [
        TraceRow(epoch, epoch, np.empty(0, np.int64), 0, 1, sample_s=0.1, compute_s=0.3)
        for epoch in range(3)
    ]
    assert (time.sample_s(0, rows[0]), time.compute_s(0, rows[0])) == (0.1, 0.3)
    seconds = [time.fetch_s(0, row, 10_000) - ROUND_TRIP_S for row in rows]
    assert seconds == pytest.approx([1.0, 2.0, 8e6 / (UNSHAPED_MBIT * 1e6)])
    assert time.fetch_s(0, rows[0], 0) == 0.0
