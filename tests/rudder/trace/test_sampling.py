"""Traces from the in-process sampler: what must be in them, and that they are repeatable."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rudder.errors import PathTakenError, ScenarioError
from rudder.home import Home
from rudder.partition import Partition, ensure_partition
from rudder.partition_graph import in_edges, train_nodes
from rudder.scenario import Scenario
from rudder.seeding import epoch_order, seed_groups, split_evenly
from rudder.trace import Trace, seeds_digest, writer
from rudder.trace.sampling import record_sampled

GRAPH, PARTS = "sbm:nodes=900,classes=3", 3
Record = Callable[..., Trace]


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Partition:
    home = Home.resolve(tmp_path_factory.mktemp("home"))
    return ensure_partition(GRAPH, PARTS, "random", 0, home.partitions, lambda *_: None)


@pytest.fixture
def record(partition: Partition, tmp_path: Path) -> Record:
    def made(name: str = "made", **fields: Any) -> Trace:
        scenario = Scenario.make(
            **{"graph": GRAPH, "parts": PARTS, "epochs": 2, "batch_size": 30, **fields}
        )
        record_sampled(scenario, partition, tmp_path / f"{name}.trace", lambda *_: None)
        return Trace.open(tmp_path / f"{name}.trace")

    return made


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("seed_order", ["uniform", "communities", "degree"])
def test_every_needed_node_is_there(record: Record, partition: Partition, seed_order: str) -> None:
    """With all neighbours taken, remote nodes and local counts can be worked out by sets."""
    trace = record(fan_out=(-1, -1), seed_order=seed_order, phases=4)
    trace.check_matches(partition.graph_digest, partition.digest)
    edges = in_edges(partition)
    sources: list[set[int]] = [set(edges.sources[a:b].tolist()) for a, b in pairwise(edges.starts)]
    ranks = split_evenly(train_nodes(partition), PARTS, 1)
    for rank, seeds in enumerate(ranks):
        assert trace.facts[rank].seeds_digest == seeds_digest(seeds)
        first, end = trace.manifest.owned(rank)
        groups = seed_groups(trace.manifest.scenario, partition, rank, seeds)
        assert (groups is None) == (seed_order == "uniform")
        order = epoch_order(groups, seeds.size, 0, rank, 0)
        for row in list(trace.minibatches(rank))[:3]:
            nodes = set(seeds[order[row.step * 30 : (row.step + 1) * 30]].tolist())
            for _ in range(2):
                nodes |= {source for node in nodes for source in sources[node]}
            remote = sorted(node for node in nodes if not first <= node < end)
            assert row.remote_ids.tolist() == remote
            assert (row.local, row.seeds) == (len(nodes) - len(remote), 30)


def test_ranks_have_as_many_minibatches_as_the_one_with_the_fewest(record: Record) -> None:
    trace = record(batch_size_at={1: 7}, trainers=2)
    (planned,) = {facts.minibatches for facts in trace.facts}
    assert [trace.length(rank) for rank in trace.ranks] == [sum(planned)] * 6
    seeds = min(sum(r.seeds for r in trace.minibatches(k) if r.epoch == 0) for k in trace.ranks)
    assert planned[0] == -(-seeds // 30)
    for row in trace.minibatches(5):
        assert row.seeds <= (30, 7)[row.epoch]
        assert row.epoch == int(row.step >= planned[0])


def test_the_same_scenario_gives_the_same_files(record: Record) -> None:
    fields = {"seed_order": "communities", "phases": 4, "fan_out_at": {1: (2, 2)}}
    assert contents(record("a", **fields).folder) == contents(record("b", **fields).folder)
    other = contents(record("c", **fields, seed=1).folder)
    assert other["rank=0/part-00000.parquet"] != contents(record("d").folder)[
        "rank=0/part-00000.parquet"
    ]  # fmt: skip


def test_a_smaller_fan_out_samples_less_from_its_epoch_on(record: Record) -> None:
    trace = record(fan_out_at={1: (1, 1)})
    sizes = [
        np.mean([r.remote_ids.size for r in trace.minibatches(0) if r.epoch == e]) for e in (0, 1)
    ]
    assert sizes[1] < 0.5 * sizes[0]


def test_an_interrupted_sampler_leaves_as_much_of_every_rank(
    partition: Partition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_ROWS", 2)
    scenario = Scenario.make(graph=GRAPH, parts=PARTS, epochs=4, batch_size=30)

    def interrupt(phase: str, share: float) -> None:
        if phase == "sample" and share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record_sampled(scenario, partition, tmp_path / "t.trace", interrupt)
    trace = Trace.open(tmp_path / "t.trace")
    planned = sum(trace.facts[0].minibatches)
    assert not trace.complete
    assert [trace.length(rank) for rank in trace.ranks] == [planned // 2 + 1] * PARTS


def test_what_cannot_be_sampled_is_refused(record: Record, partition: Partition) -> None:
    with pytest.raises(ScenarioError, match="phases = 4000"):
        record("a", seed_order="communities", phases=4000)
    with pytest.raises(ScenarioError, match="too few training nodes"):
        record("b", trainers=2000)
    record("c")
    with pytest.raises(PathTakenError, match="not empty"):
        record("c")
