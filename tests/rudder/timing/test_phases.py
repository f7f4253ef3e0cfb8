"""Seconds of phases by hand, links that are shared, and monotonicity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rudder.timing.machine import Machine
from rudder.timing.phases import Load, phases
from rudder.timing.recurrence import run_epoch
from rudder.timing.traffic import Traffic

# 2 cores; 1000 nodes of 92 bytes: sampling 1 + 1 ms, serving 2 + 0.92 ms, training 4 + 1.84 ms
MACHINE = Machine(
    cores=2, sample_fixed_s=1e-3, sample_node_s=1e-6, serve_fixed_s=2e-3, serve_byte_s=1e-8,
    train_fixed_s=4e-3, train_byte_s=2e-8, efficiency=0.8, sampling_wait=3.0,
    sampling_wait_slowest=5.0, model_bytes=60_000, burst_bytes=0.0,
)  # fmt: skip


def load(rate: float, fetched: float = 500.0) -> Load:
    values = (1000.0, fetched, 10_000.0, 90_000.0)
    return Load(*map(np.asarray, values), 92.0, np.asarray(rate), np.asarray(1.5))


def test_unshaped_links_take_no_time() -> None:
    """4 trainers on 2 cores: everything takes twice as long."""
    found = phases(MACHINE, load(0), ranks=4, depth=0)
    assert found.sample_s == pytest.approx(4e-3)
    assert found.fetch_s == pytest.approx(5.84e-3)
    assert found.compute_s == pytest.approx(11.68e-3)


def test_a_link_of_8_mbit() -> None:
    """1 byte per microsecond: sampling 5 x 10 ms, 500 rows of 100 bytes x 1.5 / 0.8, gradients."""
    found = phases(MACHINE, load(8), ranks=4, depth=0)
    assert found.sample_s == pytest.approx(4e-3 + 50e-3)
    assert found.fetch_s == pytest.approx(5.84e-3 + 75e-3 / 0.8)
    assert found.compute_s == pytest.approx(11.68e-3 + 90e-3 / 0.8)


def test_a_bucket_fills_in_pauses() -> None:
    """At 8 Mbit/s the 11.68 ms of training leave 11,680 bytes to the gradients; the 54 ms of
    sampling fill it to its burst of 40,000, of which sampling takes 10,000 and leaves 30,000."""
    found = phases(replace(MACHINE, burst_bytes=40_000.0), load(8), ranks=4, depth=0)
    assert found.compute_s == pytest.approx(11.68e-3 + (90_000 - 11_680) / 1e6 / 0.8)
    assert found.fetch_s == pytest.approx(5.84e-3 + (75_000 - 30_000) / 1e6 / 0.8)


def test_overlap_shares_link_and_cores() -> None:
    """Pulls wait for the gradients too; no round is shorter than 2 x (2 + 2.92 + 5.84) ms, part
    of which passes while gradients are on the link."""
    found = phases(MACHINE, load(8), ranks=4, depth=2)
    assert found.sample_s == pytest.approx(4e-3 + 30e-3)
    assert found.fetch_s == pytest.approx(5.84e-3 + (75e-3 + 90e-3) / 0.8)
    assert found.compute_s == pytest.approx(11.68e-3 + 90e-3 / 0.8)
    fast = phases(MACHINE, load(100), ranks=4, depth=2)  # 11.68 ms + 9 ms: less than the cores need
    assert fast.compute_s == pytest.approx(2 * 10.76e-3)


def test_messages_take_their_latency() -> None:
    """One in sampling, two in a pull that fetches, 2 x 3 in the ring of four."""
    slow = replace(MACHINE, latency_s=1.0)
    base, found = (phases(m, load(0), ranks=4, depth=0) for m in (MACHINE, slow))
    assert found.sample_s - base.sample_s == pytest.approx(1)
    assert found.fetch_s - base.fetch_s == pytest.approx(2)
    assert found.compute_s - base.compute_s == pytest.approx(6)
    assert phases(slow, load(0, fetched=0), ranks=4, depth=0).fetch_s == base.fetch_s


RATES = st.floats(1, 10_000)


@given(RATES, RATES, st.integers(0, 3), st.floats(0, 1e6), st.floats(0, 5_000))
def test_a_faster_link_is_never_slower(
    one: float, other: float, depth: int, burst: float, fetched: float
) -> None:
    machine = replace(MACHINE, burst_bytes=burst)

    def seconds(rate: float) -> float:
        found = phases(machine, load(rate, fetched), ranks=4, depth=depth)
        every = (np.full((1, 5), s) for s in (found.sample_s, found.fetch_s, found.compute_s))
        return run_epoch(type(found)(*every), depth).seconds

    assert seconds(max(one, other)) <= seconds(min(one, other)) * (1 + 1e-9)


@given(st.floats(0, 5_000), st.floats(0, 5_000), RATES, st.integers(0, 3))
def test_more_rows_are_never_faster(one: float, other: float, rate: float, depth: int) -> None:
    few, many = (
        phases(MACHINE, load(rate, rows), ranks=4, depth=depth).fetch_s
        for rows in sorted((one, other))
    )
    assert few <= many * (1 + 1e-9)


def test_flows_share_links_evenly() -> None:
    """Part 0 sends 10 rows to rank 1 and 30 to rank 2: the small flow ends after 2 x 10 rows, the
    large one after 40. Rank 1 takes 10 rows from part 2 as well: 20 into its host."""
    rows = np.array([[0.0, 0.0, 0.0], [10.0, 0.0, 10.0], [30.0, 0.0, 0.0]])
    assert Traffic(rows).contention().tolist() == [1.0, 20 / 20, 40 / 30]


def test_trainers_of_a_host_share_its_link() -> None:
    """Ranks 0 and 1 on one host: 10 and 30 rows into one link end after 20 and 40."""
    rows = np.array([[0.0, 10.0], [0.0, 30.0], [0.0, 0.0], [0.0, 0.0]])
    assert Traffic(rows, trainers=2).contention().tolist() == [2.0, 40 / 30, 1.0, 1.0]
