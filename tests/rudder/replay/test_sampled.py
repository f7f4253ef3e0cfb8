"""Sampled traces: what is shared, and that they are whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rudder.home import Home
from rudder.partition import Partition, ensure_partition
from rudder.replay.sampled import finished, sample, sampled_folder, sampled_scenario
from rudder.scenario import Scenario
from rudder.trace import RankFacts, Trace

GRAPH = "sbm:nodes=600,classes=3"
SCENARIO = Scenario.make(graph=GRAPH, parts=2, partition_method="random", epochs=2, batch_size=40)


@pytest.fixture
def partition(home: Home) -> Partition:
    return ensure_partition(GRAPH, 2, "random", 0, home.partitions, lambda *_: None)


def test_scenarios_share_a_trace_if_a_replay_may_change_what_differs() -> None:
    wanted = sampled_scenario(SCENARIO)
    for change in (
        {"policy": "massivegnn", "buffer": 0.5, "fill": "empty"},
        {"rate": 50.0, "rate_at": {1: 10.0}},
        {"mode": "sync", "prefetch_depth": 0},
    ):
        assert sampled_scenario(SCENARIO.change(**change)) == wanted
    for change in ({"seed": 1}, {"fan_out": (5, 5)}, {"seed_order": "degree"}, {"epochs": 3}):
        assert sampled_scenario(SCENARIO.change(**change)) != wanted


def test_a_trace_is_sampled_once_and_whole(
    home: Home, partition: Partition, tmp_path: Path
) -> None:
    wanted = sampled_scenario(SCENARIO)
    folder, scratch = sampled_folder(home, wanted, partition), tmp_path / "scratch"
    assert folder.parent == home.traces
    assert not finished(folder)
    sample(wanted, partition, folder, scratch)
    assert finished(folder)
    assert not scratch.exists()
    trace = Trace.open(folder)
    assert trace.manifest.scenario == wanted
    trace.check_matches(partition.graph_digest, partition.digest)
    before = (folder / "manifest.json").stat().st_mtime_ns
    sample(wanted, partition, folder, scratch)
    assert (folder / "manifest.json").stat().st_mtime_ns == before


def test_another_partition_means_another_trace(home: Home, partition: Partition) -> None:
    other = ensure_partition(GRAPH, 2, "random", 1, home.partitions, lambda *_: None)
    wanted = sampled_scenario(SCENARIO)
    assert sampled_folder(home, wanted, partition) != sampled_folder(home, wanted, other)


def test_a_recording_that_was_cut_short_is_not_finished(
    home: Home, partition: Partition, tmp_path: Path
) -> None:
    folder = tmp_path / "cut.trace"
    sample(sampled_scenario(SCENARIO), partition, folder, tmp_path / "scratch")
    facts = RankFacts.load(folder / "rank=1", Trace.open(folder).manifest.trace_id, 1)
    replace(facts, rows=None).save(folder / "rank=1", Trace.open(folder).manifest.trace_id)
    assert not finished(folder)
