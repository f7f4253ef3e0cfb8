"""What a replay tells controllers, and what its run is compared with, by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rudder.errors import ScenarioError
from rudder.plugins import load_file
from rudder.registries import CONTROLLERS
from rudder.replay.clock import TrainerClock
from rudder.replay.engine import FREE, ReplayEngine
from rudder.replay.run import ratio
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.trace import Trace

MakeTrace = Callable[..., Trace]
Replay = Callable[..., RunResult]
ROW_BYTES = 400


def journal(result: RunResult, rank: int) -> list[dict[str, Any]]:
    assert result.run_dir is not None
    path = result.run_dir / "ranks" / f"decisions-rank={rank}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def zipf(minibatches: int, first: int, nodes: int, seed: int) -> list[list[int]]:
    """Sorted ids from ``first`` on, low ones most often, 20 per minibatch."""
    rng = np.random.default_rng(seed)
    likely = 1 / np.arange(1, nodes + 1)
    drawn = (
        first + rng.choice(nodes, 20, replace=False, p=likely / likely.sum())
        for _ in range(minibatches)
    )
    return [sorted(ids.tolist()) for ids in drawn]


def test_what_a_run_is_compared_with(make_trace: MakeTrace, replay: Replay) -> None:
    """One slot each. Rank 0 (fill {4}): the run hits 4 twice; MIN hits 4, then keeps 5 for two
    hits; from empty these two only; the best set is {5}, needed three times. Rank 1 (fill {0}):
    run and MIN hit 0 twice; from empty once; the best set is {0}."""
    trace = make_trace(
        [[[4, 5], [5], [4, 5], [6]], [[0], [1], [0], [2]]], part_nodes=(4, 6)
    )  # fmt: skip
    summary = replay(trace, "static", buffer=1).summary
    assert summary["remote_sampled"] == 6 + 4
    assert summary["filled"] == 1 + 1
    assert summary["fetched"] == 4 + 2
    assert summary["min_fetched"] == 3 + 2
    assert summary["regret"] == 6 / 5
    assert summary["min_from_empty_fetched"] == 4 + 3
    assert summary["best_static_fetched"] == 3 + 2
    assert summary["communication_vs_no_buffer"] == 6 / 10


def test_ratios_to_nothing() -> None:
    assert (ratio(3, 2), ratio(0, 0), ratio(3, 0)) == (1.5, 1.0, None)


def test_nothing_remote_has_no_regret(make_trace: MakeTrace, replay: Replay) -> None:
    summary = replay(make_trace([[[]] * 3], part_nodes=(4,)), "always").summary
    assert (summary["fetched"], summary["regret"], summary["hit_rate"]) == (0, 1.0, None)


def test_a_random_fill_is_of_the_seed(make_trace: MakeTrace, replay: Replay) -> None:
    trace = make_trace([zipf(5, 50, 50, 0), zipf(5, 0, 50, 1)], part_nodes=(50, 50))
    result = replay(trace, "random:p=0", fill="random", buffer=10, seed=3)
    hits: dict[int, list[int]] = {}
    for seed in (0, 3):
        hits[seed] = [
            int(np.isin(row.remote_ids, trace.fill_ids(rank, "random", 10, seed)).sum())
            for rank in trace.ranks
            for row in trace.minibatches(rank)
        ]
    assert result.minibatches.column("hits").to_pylist() == hits[3] != hits[0]


def test_presampling_counts_so_many_minibatches(make_trace: MakeTrace, replay: Replay) -> None:
    """Two: 6 twice, 7 once. One would be filled up by degree, {6, 4}; three would tie 4 with 7."""
    accesses = [[[6], [6, 7], [4, 5], [4], [5]], [[]] * 5]
    trace = make_trace(accesses, part_nodes=(4, 6))
    result = replay(trace, "always", policy="presampled:minibatches=2", buffer=2)
    assert result.minibatches.column("hits").to_pylist()[:5] == [1, 2, 0, 0, 0]


def test_bytes_are_of_the_rows_fetched(make_trace: MakeTrace, replay: Replay) -> None:
    trace = make_trace([zipf(20, 50, 50, 0), zipf(20, 0, 50, 1)], part_nodes=(50, 50))
    result = replay(trace, "always", policy="score-published", buffer=0.5)
    rows = result.minibatches.to_pandas()
    assert (rows["fetched"] > rows["misses"]).any()
    assert (rows["bytes_features"] == ROW_BYTES * rows["fetched"]).all()
    assert (rows["bytes_ids"] == 8 * rows["fetched"]).all()


def test_controllers_are_told_the_facts_of_their_part(
    make_trace: MakeTrace, replay: Replay
) -> None:
    trace = make_trace(
        [[[4]], [[5]], [[0, 1]], [[1]]], part_nodes=(4, 6), halos=[[4, 5, 6], [0, 1]], trainers=2
    )
    result = replay(trace, "always", buffer=2, policy="massivegnn", seed=7)
    told = [journal(result, rank)[0] for rank in trace.ranks]
    assert [(task["kind"], task["rank"], task["seed"]) for task in told] == [
        ("task", rank, 7) for rank in range(4)
    ]
    assert told[2]["facts"] == {
        "graph": "tiny", "nodes": 10, "edges": 40, "feature_bytes": ROW_BYTES, "parts": 2,
        "part_nodes": 6, "halo_nodes": 2, "remote_nodes": 4, "batch_size": 2, "fan_out": [10, 25],
        "capacity": 2, "trainers": 4, "epochs": 1, "total_minibatches": 1,
        "policy": "massivegnn",
    }  # fmt: skip
    assert [task["facts"]["part_nodes"] for task in told] == [4, 4, 6, 6]


@pytest.mark.parametrize("sample_s", [0.25, 0.0])
def test_controllers_are_told_modelled_seconds(
    sample_s: float, make_trace: MakeTrace, replay: Replay
) -> None:
    """All rows are buffered: a pull takes no time. Nothing is pulled ahead, so that at each
    observation the minibatch before is trained, be it just now."""
    trace = make_trace(
        [[[4]] * 4, [[0]] * 4], part_nodes=(4, 6), seconds={"sample_s": sample_s, "compute_s": 2.0}
    )
    result = replay(trace, "always", buffer=1, prefetch_depth=0)
    seen = [line["observation"] for line in journal(result, 0) if line["kind"] == "decision"]
    assert all(observation["modelled_seconds"] for observation in seen)
    windows = [observation["window"] for observation in seen]
    assert [window["sample_s"] for window in windows] == [sample_s] * 3
    assert [window["compute_s"] for window in windows] == [0.0, 2.0, 2.0]
    assert [window["stall_s"] for window in windows] == [0.0, sample_s, sample_s]


CHANGED = {
    "graph": "other", "model": "gat", "layers": 3, "hidden": 7, "heads": 7, "dropout": 0.1,
    "lr": 0.1, "fan_out": (1, 2), "batch_size": 7, "epochs": 7, "eval_every": 7, "parts": 7,
    "partition_method": "random", "trainers": 7, "seed_order": "degree", "phases": 7,
    "batch_size_at": {1: 7}, "fan_out_at": {1: (1, 2)},
}  # fmt: skip


def test_every_field_but_the_free_ones_is_fixed(make_trace: MakeTrace) -> None:
    assert set(CHANGED) == set(Scenario.model_fields) - set(FREE)
    engine = ReplayEngine(make_trace([[[1]] * 2, [[0]] * 2], part_nodes=(1, 1), epochs=2))
    for name, value in CHANGED.items():
        more = {"fan_out": (1, 2, 3)} if name == "layers" else {}
        with pytest.raises(ScenarioError, match=rf"{name} = .*fixes this"):
            engine.check(engine.scenario.change(**{name: value}, **more), Spec("always"))


def test_the_oracle_has_the_scenario_and_the_latency_of_the_run(
    make_trace: MakeTrace, replay: Replay
) -> None:
    trace = make_trace(
        [zipf(40, 50, 50, 0), zipf(40, 0, 50, 1)], part_nodes=(50, 50),
        seconds={"sample_s": 0.001, "compute_s": 0.01},
    )  # fmt: skip
    fields = {"fill": "empty", "buffer": 0.5, "rate": 100.0}  # soon filled, if asked soon

    def asked(latency_s: float) -> Any:
        engine = {"oracle": Spec("timing-oracle"), "record_decisions": False}
        ran = replay(trace, f"always:latency_s={latency_s}", engine=engine, **fields)
        return ran.summary["timing_oracle_fetched"]

    own = replay(trace, "timing-oracle:latency_s=0.1", **fields).summary["fetched"]
    assert asked(0.1) == own != asked(0.0)
    assert own != replay(trace, "timing-oracle:latency_s=0.1").summary["fetched"]


FORETOLD = '''
import json
from rudder import Capabilities, Decision
from rudder.registries import CONTROLLERS
from rudder.replay.foresight import ForesightController


class Foretold(ForesightController):
    """Replaces every time, and says what it foresaw of that."""

    tags = Capabilities(replay_only=True)

    def foresee(self, future):
        self.future = future

    def _decide(self, observation):
        always = Decision(replace=True)
        return Decision(replace=True, explanation=json.dumps(self.future.roll_out(always, always, 3)))


CONTROLLERS.register("foretold", Foretold)
'''  # noqa: E501


@pytest.mark.parametrize(("seconds", "latency_s"), [(0.01, 0.02), (0.0, 0.0)])
def test_epochs_and_answers_at_once_are_foreseen(
    seconds: float, latency_s: float, make_trace: MakeTrace, replay: Replay, tmp_path: Path
) -> None:
    """Rank 1 fetches nothing, so that rank 0 is the one that epochs wait for. A trace of the
    sampler has no seconds: an answer is there when the next pull begins."""
    if "foretold" not in CONTROLLERS:
        (tmp_path / "foretold.py").write_text(FORETOLD)
        load_file(tmp_path / "foretold.py")
    trace = make_trace(
        [zipf(24, 50, 50, 0), [[]] * 24], part_nodes=(50, 50), epochs=4,
        seconds={"sample_s": seconds / 10, "compute_s": seconds},
    )  # fmt: skip
    result = replay(
        trace, f"foretold:latency_s={latency_s}", policy="score-published", buffer=0.5, rate=10.0
    )
    rows = [row for row in result.minibatches.to_pylist() if row["rank"] == 0]
    clock, pulled, trained = TrainerClock(result.scenario.prefetch_depth), [], []
    for row in rows:
        if row["step"] and row["epoch"] != rows[row["step"] - 1]["epoch"]:
            clock.begin_epoch(clock.trained)
        clock.begin()
        clock.advance(row["sample_s"] + row["fetch_s"])
        pulled.append(clock.now)
        clock.take_over()
        clock.train(clock.taken + row["compute_s"])
        trained.append(clock.trained)
    checked = 0
    for decision in result.decisions:
        at = decision["applied_at"]
        if decision["rank"] or at is None:
            continue
        fetched, took, minibatches = json.loads(decision["decision"]["explanation"])
        looked_at = range(at, min(at + 3, 24))
        assert minibatches == len(looked_at)
        assert fetched == sum(rows[step]["fetched"] for step in looked_at)
        expected = trained[looked_at[-1]] - pulled[decision["asked_at"] - 1]
        assert took == pytest.approx(expected)
        checked += 1
    assert checked > 5
