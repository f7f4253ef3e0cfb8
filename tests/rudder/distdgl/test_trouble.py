"""What a run felt without ending."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rudder.distdgl.trouble import BYTES_PER_MINIBATCH, Clock, Room, trouble_of_links
from rudder.result import MinibatchRow, minibatch_table


def row(
    rank: int, step: int, fetched: int, fetch_s: float, sample_s: float = 0.0, **more: float
) -> MinibatchRow:
    return MinibatchRow(
        rank, 0, step, 10, 5, fetched, 0, fetched, 0, fetched, 0.0, 0.0, sample_s, fetch_s, **more
    )


def test_pulls_that_stalled_or_were_slow_are_told_by_rank() -> None:
    quick = [row(0, step, 100, 0.01) for step in range(20)]
    large = row(0, 20, 100_000, 1.0)  # at its usual pace
    stalled, slow = row(0, 21, 100, 5.0), row(0, 22, 100, 0.5)
    other = [row(1, step, 100, 0.3) for step in range(9)]  # a slow link all along
    table = minibatch_table([*quick, large, stalled, slow, *other])
    found = trouble_of_links(table, [[], []])
    assert found[0] == {"stalled": 1, "stalled_s": 5.0, "slow": 1, "slow_s": 0.5}
    assert found[1] == {"stalled": 0, "stalled_s": 0.0, "slow": 0, "slow_s": 0.0}


def test_whatever_needed_the_link_stalled() -> None:
    usual = [row(0, step, 100, 0.01, 0.02, compute_s=0.05) for step in range(20)]
    sampling, gradients = row(0, 20, 100, 0.01, 5.0), row(0, 21, 100, 0.01, compute_s=4.0)
    epochs = [{"pause_s": pause} for pause in (9.0, 0.1, 0.1, 0.1, 3.0)]  # the first is no pause
    (found,) = trouble_of_links(minibatch_table([*usual, sampling, gradients]), [epochs])
    assert found == {"stalled": 3, "stalled_s": 12.0, "slow": 0, "slow_s": 0.0}
    large = [row(0, step, 100, 0.01, compute_s=3.0) for step in range(20)]  # takes long always
    (found,) = trouble_of_links(minibatch_table(large), [[]])
    assert found["stalled"] == 0


def test_without_a_minibatch_there_was_no_trouble() -> None:
    assert trouble_of_links(minibatch_table([]), [[]])[0]["stalled"] == 0


def test_a_clock_that_is_set_is_seen_once_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, true = Clock(), time.time
    off = [0.0]
    monkeypatch.setattr(time, "time", lambda: true() + off[0])
    clock.look()
    off[0] = 0.3  # adjusted, as clocks are
    clock.look()
    assert clock.jumps == []
    for off[0] in (3600.0, -3600.0):
        clock.look()
        clock.look()
    assert [round(jump) for jump in clock.jumps] == [3600, -7200]


def test_too_little_room_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = Room(tmp_path)
    room.look(10, 1000)
    assert caplog.messages == []
    for _ in range(2):
        room.look(10**15 // BYTES_PER_MINIBATCH)
    (told,) = caplog.messages
    assert str(tmp_path) in told
    assert "make room" in told
