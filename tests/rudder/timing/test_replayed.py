"""A trace's traffic and shape, and the seconds of its replay under a calibration, by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rudder.scenario import Scenario
from rudder.timing import Machine, Traffic, calibrated_time
from rudder.timing.phases import Load, phases
from rudder.timing.scale import Shape
from rudder.trace import Manifest, RankFacts, Trace, TraceRow, TraceWriter, start_trace

# Its own cores; a link of 8 Mbit/s passes 1 byte per microsecond.
MACHINE = Machine(
    cores=0, sample_fixed_s=0.0, sample_node_s=1e-3, serve_fixed_s=0.0, serve_byte_s=0.0,
    train_fixed_s=0.5, train_byte_s=0.0, efficiency=0.5, sampling_wait=2.0,
    sampling_wait_slowest=3.0, sampling_row_bytes=1000.0, model_bytes=30_000, burst_bytes=0.0,
)  # fmt: skip


def recorded(folder: Path, accesses: Sequence[Sequence[Sequence[int]]]) -> Trace:
    """Three parts of ten nodes with one trainer each; one minibatch per epoch, 5 local nodes."""
    scenario = Scenario.make(
        graph="tiny", parts=3, epochs=2, batch_size=2, rate=8.0, rate_at={1: 4.0}
    )
    manifest = Manifest(
        "t", "sampler", scenario, "graph", "partition", 30, 120, 92, (10, 10, 10), (10, 5, 0)
    )
    halos = [np.arange(10, 20), np.arange(5), np.empty(0, np.int64)]
    start_trace(folder, manifest, halos, np.ones(30, np.int32))
    for rank, rows in enumerate(accesses):
        with TraceWriter(folder, manifest, RankFacts(rank, (1, 1), "seeds")) as writer:
            for step, ids in enumerate(rows):
                writer.append(TraceRow(step, step, np.array(ids, np.int64), 5, 2))
    return Trace.open(folder)


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Ranks 0 and 1 sample three nodes and one of part 2: their flows share its link, and end
    after 3 + 1 rows and 1 + 1."""
    return recorded(tmp_path / "t.trace", [[[20, 21, 22]] * 2, [[20]] * 2, [[]] * 2])


def test_nothing_is_pulled_ahead(trace: Trace) -> None:
    scenario = trace.manifest.scenario.change(prefetch_depth=0)
    time = calibrated_time(MACHINE)(trace, scenario)
    (first, later), (other, _) = (list(trace.minibatches(rank)) for rank in (0, 1))
    assert time.barrier
    # 8 and 6 nodes; 3 x 1000 bytes of sampling per remote node
    assert time.sample_s(0, first) == pytest.approx(8e-3 + 9e-3)
    assert time.sample_s(1, other) == pytest.approx(6e-3 + 3e-3)
    # rows of 100 bytes with their ids, 4/3 and 2 times as long as alone, at half the rate
    assert time.fetch_s(0, first, 2) == pytest.approx(200e-6 * 4 / 3 / 0.5)
    assert time.fetch_s(1, other, 1) == pytest.approx(100e-6 * 2 / 0.5)
    # 2 x 2 / 3 of the model's bytes
    assert time.compute_s(0, first) == pytest.approx(0.5 + 40e-3 / 0.5)
    # the link is half as fast in epoch 1
    assert time.sample_s(0, later) == pytest.approx(8e-3 + 18e-3)
    assert time.fetch_s(0, later, 2) == pytest.approx(2 * 200e-6 * 4 / 3 / 0.5)
    assert time.compute_s(0, later) == pytest.approx(0.5 + 80e-3 / 0.5)


def test_pulls_run_ahead(trace: Trace) -> None:
    """Sampling counts with the mean of 3, 1 and 0 rows on every rank; pulls wait for gradients."""
    time = calibrated_time(MACHINE)(trace, trace.manifest.scenario.change(prefetch_depth=2))
    rows = [next(iter(trace.minibatches(rank))) for rank in (0, 1)]
    assert time.sample_s(0, rows[0]) == pytest.approx(8e-3 + 2 * 4e-3 / 3)
    assert time.sample_s(1, rows[1]) == pytest.approx(6e-3 + 2 * 4e-3 / 3)
    assert time.fetch_s(1, rows[1], 1) == pytest.approx((200e-6 + 40e-3) / 0.5)
    assert time.compute_s(1, rows[1]) == pytest.approx(0.5 + 40e-3 / 0.5)


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("burst", [0.0, 150.0, 1e4])
def test_a_pull_takes_what_the_equations_say_whatever_is_fetched(
    trace: Trace, depth: int, burst: float
) -> None:
    """Below, at and above what the bucket lets pass, asked in any order."""
    machine = dataclasses.replace(
        MACHINE, burst_bytes=burst, latency_s=0.01, sampling_row_bytes=10.0, model_bytes=30.0
    )
    scenario = trace.manifest.scenario.change(prefetch_depth=depth)
    time = calibrated_time(machine)(trace, scenario)
    traffic, row = Traffic.of(trace), next(iter(trace.minibatches(0)))
    sampling = 10.0 * (3 if depth == 0 else 4 / 3)
    for fetched in (3, 0, 1, 2, 50, 2, 4000):
        load = Load(
            nodes=np.array(8.0), fetched=np.array(float(fetched)),
            sampling_bytes=np.array(sampling), gradient_bytes=np.array(machine.gradient_bytes(3)),
            row_bytes=92.0, rate=np.array(8.0), contention=np.array(traffic.contention()[0]),
        )  # fmt: skip
        wanted = phases(machine, load, 3, depth)
        assert time.fetch_s(0, row, fetched) == pytest.approx(float(wanted.fetch_s), rel=1e-9)
        assert time.sample_s(0, row) == float(wanted.sample_s)
        assert time.compute_s(0, row) == float(wanted.compute_s)


@pytest.fixture
def changing(tmp_path: Path) -> Trace:
    return recorded(tmp_path / "c.trace", [[[20, 21, 22], [10, 20]], [[20], [20]], [[], []]])


def test_traffic_is_a_mean_over_minibatches(changing: Trace) -> None:
    assert Traffic.of(changing).rows.tolist() == [[0, 0.5, 2], [0, 0, 1], [0, 0, 0]]
    assert Traffic.of(changing, minibatches=1).rows[0].tolist() == [0, 0, 3]


def test_the_shape_of_a_trace(changing: Trace) -> None:
    """On average 3.5 / 3 rows per rank. Rank 0 pulls for as long as 3 rows take: its 2 from part 2
    share that link with rank 1's one."""
    shape = Shape.of(changing, 0.7)
    assert (shape.parts, shape.minibatches, shape.fetched_share) == (3, 2, 0.7)
    assert shape.nodes == pytest.approx(5 + 7 / 6)
    assert shape.local_share == pytest.approx(5 / (5 + 7 / 6))
    assert shape.halo_share == pytest.approx((1 + 0.5 + 0) / 3)
    assert shape.balance == pytest.approx(3 / (3.5 / 3))
