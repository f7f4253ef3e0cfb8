"""Traces of real runs, and access patterns that change during them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rudder.engine import RunOptions
from rudder.errors import PathTakenError
from rudder.home import Home
from rudder.partition import Partition
from rudder.partition_graph import train_nodes
from rudder.registries import ENGINES
from rudder.result import RunResult
from rudder.seeding import split_evenly
from rudder.spec import Spec
from rudder.trace import Trace, seeds_digest
from rudder.trace.sampling import record_sampled

pytestmark = pytest.mark.cluster
Run = Callable[..., RunResult]
SLOW = 2.0
"""Mbit/s of the second epoch."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recorded") / "real.trace"


@pytest.fixture(scope="module")
def result(run: Run, folder: Path) -> RunResult:
    """Two epochs: the second has smaller batches, all neighbours and a slow network."""
    return run(
        "always", record=folder, seed_order="communities", phases=4, layers=1, fan_out=(3,),
        batch_size_at=((1, 50),),
        fan_out_at=((1, (-1,)),), rate_at=((1, SLOW),),
    )  # fmt: skip


@pytest.fixture(scope="module")
def trace(result: RunResult, folder: Path) -> Trace:
    return Trace.open(folder)


@pytest.fixture(scope="module")
def partition(result: RunResult) -> Partition:
    return Partition.load(Path(result.details["partition"]))


def column(result: RunResult, name: str, rank: int) -> Any:
    table = result.minibatches
    return table.column(name).to_numpy()[table.column("rank").to_numpy() == rank]


def test_the_trace_has_what_the_runs_table_has(result: RunResult, trace: Trace) -> None:
    assert trace.complete
    assert trace.manifest.recorder == "distdgl"
    assert trace.manifest.scenario == result.scenario
    for rank in trace.ranks:
        rows = list(trace.minibatches(rank))
        sampled = [row.remote_ids.size for row in rows]
        assert sampled == column(result, "remote_sampled", rank).tolist()
        assert sum(sampled) > 0
        for name in ("epoch", "step", "local", "seeds", "sample_s", "fetch_s", "compute_s",
                     "stall_s"):  # fmt: skip
            assert [getattr(row, name) for row in rows] == column(result, name, rank).tolist()


def test_the_trace_is_of_this_partition_and_these_seeds(trace: Trace, partition: Partition) -> None:
    trace.check_matches(partition.graph_digest, partition.digest)
    for rank, seeds in enumerate(split_evenly(train_nodes(partition), 2, 1)):
        assert trace.facts[rank].seeds_digest == seeds_digest(seeds)
        assert np.array_equal(trace.halo(rank), partition.halo(rank))
    assert np.array_equal(trace.degree(), partition.degree())


def test_the_sampler_gives_the_same_minibatches_with_other_neighbours(
    trace: Trace, partition: Partition, tmp_path: Path
) -> None:
    record_sampled(trace.manifest.scenario, partition, tmp_path / "x.trace", lambda *_: None)
    sampled = Trace.open(tmp_path / "x.trace")
    assert sampled.manifest.recorder == "sampler"
    for rank in trace.ranks:
        assert sampled.facts[rank] == trace.facts[rank]
        pairs = list(zip(trace.minibatches(rank), sampled.minibatches(rank), strict=True))
        for real, drawn in pairs:
            assert (drawn.epoch, drawn.step, drawn.seeds) == (real.epoch, real.step, real.seeds)
            if real.epoch == 1:  # all neighbours: the same seeds need the same nodes
                assert drawn.local == real.local
                assert np.array_equal(drawn.remote_ids, real.remote_ids)
        real_mean, drawn_mean = (
            np.mean([pair[k].remote_ids.size for pair in pairs if pair[k].epoch == 0])
            for k in (0, 1)
        )
        assert drawn_mean == pytest.approx(real_mean, rel=0.25)  # 5 standard errors


def test_batches_and_fan_out_change_with_the_epoch(result: RunResult, trace: Trace) -> None:
    epochs, seeds = column(result, "epoch", 0), column(result, "seeds", 0)
    assert seeds[epochs == 0].max() == 200
    assert seeds[epochs == 1].max() == 50
    assert trace.facts[0].minibatches == tuple(np.bincount(epochs).tolist())
    per_seed = column(result, "remote_sampled", 0) / seeds
    assert per_seed[epochs == 1].mean() > 1.5 * per_seed[epochs == 0].mean()


def test_links_change_their_rate_with_the_epoch(result: RunResult) -> None:
    def rate(epoch: int) -> float:
        """Mbit/s of feature rows that a trainer received while it pulled."""
        mine = column(result, "epoch", 0) == epoch
        received = column(result, "bytes_features", 0)[mine].sum()
        return float(8e-6 * received / column(result, "fetch_s", 0)[mine].sum())

    assert rate(1) < 2 * SLOW  # the token bucket fills while nothing is pulled
    assert rate(0) > 4 * SLOW


def test_a_place_that_is_taken_is_told_before_anything_starts(
    folder: Path, trace: Trace, home: Home
) -> None:
    options = RunOptions(home, home.runs / "x", record=folder)
    with pytest.raises(PathTakenError, match="not empty"):
        ENGINES.build("distdgl").run(trace.manifest.scenario, Spec.parse("none"), options)
    assert not options.run_dir.exists()
