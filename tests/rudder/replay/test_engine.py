"""Replays of small traces: counts, clock, refusals, and what is told of the result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rudder.buffer import PersistentBuffer
from rudder.conformance.situations import task
from rudder.decision import Decision
from rudder.errors import (
    CapacityError,
    ControllerError,
    ReplayOnlyError,
    ScenarioError,
    SpecError,
    UnknownNameError,
)
from rudder.plugins import load_file
from rudder.registries import CONTROLLERS, ENGINES, POLICIES
from rudder.replay.bounds import MinBound
from rudder.replay.clock import TimeModel, TrainerClock
from rudder.replay.engine import ReplayEngine
from rudder.replay.recorded import read_answers
from rudder.result import MINIBATCH_SCHEMA, SUMMARY_KEYS, RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.steering import steer
from rudder.trace import RankFacts, Trace, TraceRow, TraceWriter

Replay = Callable[..., RunResult]
MakeTrace = Callable[..., Trace]

NODES = 600
"""Of each of two parts."""
POLICY_NAMES = ["degree", "lfu", "lfu-decay", "lookahead:window=3", "lru", "massivegnn",
                "presampled:minibatches=4", "score", "score-published"]  # fmt: skip


def accesses(minibatches: int = 40, size: int = 30, drift: int = 0, seed: int = 1) -> Any:
    """Two ranks; low ids (of the other part) most often; shifted by ``drift`` per minibatch."""
    rng = np.random.default_rng(seed)
    likely = 1 / np.arange(1, NODES + 1) ** 0.8
    found = []
    for rank in range(2):
        offset = NODES * (1 - rank)
        ids = (
            (rng.choice(NODES, size, replace=False, p=likely / likely.sum()) + drift * step) % NODES
            for step in range(minibatches)
        )
        found.append([sorted((offset + nodes).tolist()) for nodes in ids])
    return found


@pytest.fixture
def trace(make_trace: MakeTrace) -> Trace:
    return make_trace(
        accesses(), part_nodes=(NODES, NODES), epochs=4,
        seconds={"sample_s": 0.001, "compute_s": 0.01},
    )  # fmt: skip


COUNTS = ["rank", "step", "hits", "misses", "replaced", "fetched", "stale_share", "occupancy"]


def counts(result: RunResult) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = result.minibatches.select(COUNTS).to_pydict()
    return found


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[int], list[list[int]], list[float | None]]:
    capacity = draw(st.integers(0, 5))
    some = st.lists(st.integers(0, 15), unique=True, max_size=8).map(sorted)
    filled = draw(some.map(lambda ids: ids[:capacity]))
    trace = draw(st.lists(some, max_size=30))
    share = st.one_of(st.none(), st.floats(0, 1))
    return capacity, filled, trace, draw(st.lists(share, min_size=len(trace), max_size=len(trace)))


@pytest.mark.parametrize("policy", POLICY_NAMES)
@given(history=histories())
def test_no_policy_fetches_less_than_min(
    policy: str, history: tuple[int, list[int], list[list[int]], list[float | None]]
) -> None:
    """After every minibatch, whatever is decided."""
    capacity, filled, trace, shares = history
    rule = POLICIES.build(policy)
    buffer, least = PersistentBuffer(capacity, 0, rule), MinBound(capacity, np.array(filled, int))
    buffer.fill(np.array(filled, np.int64))
    announced = fetched = 0
    for step, (nodes, share) in enumerate(zip(trace, shares, strict=True)):
        for ahead in trace[announced : step + rule.window + 1] if rule.window else ():
            buffer.announce(np.array(ahead, np.int64))
            announced += 1
        decision = None if share is None else Decision(replace=True, share=share)
        plan = buffer.plan(np.array(nodes, np.int64), decision)
        buffer.commit(plan)
        fetched += plan.fetched
        least.add(np.array(nodes, np.int64))
        assert fetched >= least.fetched


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_regret_and_shares(policy: str, trace: Trace, replay: Replay) -> None:
    summary = replay(trace, "always", policy=policy).summary
    assert summary["regret"] == summary["fetched"] / summary["min_fetched"] >= 1
    share = summary["communication_vs_no_buffer"]
    assert share == summary["fetched"] / summary["remote_sampled"]
    nothing = replay(trace, "none").summary
    assert nothing["fetched"] == nothing["remote_sampled"] == summary["remote_sampled"]
    assert summary["min_from_empty_fetched"] >= summary["min_fetched"]


def test_summary_and_table_are_those_of_any_run(trace: Trace, replay: Replay) -> None:
    result = replay(trace, "always", rate=100.0)
    assert tuple(result.summary)[: len(SUMMARY_KEYS)] == SUMMARY_KEYS
    assert result.minibatches.schema == MINIBATCH_SCHEMA
    rows = result.minibatches.to_pydict()
    assert list(zip(rows["rank"], rows["step"], strict=True)) == [
        (rank, step) for rank in range(2) for step in range(40)
    ]
    assert result.summary["modelled"] == ["epoch_seconds", "stall_seconds"]
    assert result.summary["epoch_seconds"] > 10 * 0.01
    assert result.summary["decisions"] == len(result.decisions) == 2 * 39
    assert result.run_dir is not None
    assert RunResult.load(result.run_dir).summary == result.summary


def test_it_is_repeatable(trace: Trace, replay: Replay) -> None:
    first, again = (replay(trace, "random", fill="random", rate=50.0) for _ in range(2))
    other = replay(trace, "random", fill="random", rate=50.0, seed=1)
    tables = [r.minibatches.drop_columns("loss") for r in (first, again, other)]
    assert tables[0].equals(tables[1])
    assert not tables[0].equals(tables[2])


def test_trainers_have_buffers_of_their_own(make_trace: MakeTrace, replay: Replay) -> None:
    both = accesses()
    together = replay(make_trace(both, part_nodes=(NODES, NODES), name="both"), "always")
    alone = replay(
        make_trace([both[0], [[]] * 40], part_nodes=(NODES, NODES), name="alone",
                   halos=[sorted({i for ids in rank for i in ids}) for rank in both]),
        "always",
    )  # fmt: skip
    first = [row for row in together.minibatches.to_pylist() if row["rank"] == 0]
    same = [row for row in alone.minibatches.to_pylist() if row["rank"] == 0]
    assert [row["fetched"] for row in first] == [row["fetched"] for row in same]


def test_lookahead_sees_its_window_over_epochs(trace: Trace, replay: Replay) -> None:
    result = replay(trace, "always", policy="lookahead:window=3", buffer=40)
    hits = []
    for rank in trace.ranks:
        rows = [row.remote_ids.copy() for row in trace.minibatches(rank)]
        buffer = PersistentBuffer(40, 0, POLICIES.build("lookahead:window=3"))
        buffer.fill(trace.fill_ids(rank, "degree", 40, 0))
        for ids in rows[:3]:
            buffer.announce(ids)
        for step, ids in enumerate(rows):
            if step + 3 < len(rows):
                buffer.announce(rows[step + 3])
            plan = buffer.plan(ids)
            buffer.commit(plan)
            hits.append(plan.hits)
    assert counts(result)["hits"] == hits


def test_the_latency_decides_which_pull_sees_the_answer(trace: Trace, replay: Replay) -> None:
    """Pulls are 11 ms apart (sampling 1, computing 10; nothing is fetched in no time)."""
    for latency_s, apart in ((0.0, 1), (0.011, 1), (0.012, 2), (0.025, 3)):
        result = replay(
            trace, f"always:latency_s={latency_s}", buffer=NODES, prefetch_depth=0, fill="degree",
        )  # fmt: skip
        assert result.summary["fetched"] == 0  # all remote nodes are in the buffer
        applied = [d["applied_at"] for d in result.decisions if d["rank"] == 0]
        # The last answer may arrive when all is pulled, and apply nowhere.
        assert [at for at in applied if at is not None] == list(range(apart, 40, apart))


class Uneven(TimeModel):
    """Rank 0 computes 1 s, rank 1 computes 3 s; pulls take 0.5 s."""

    def __init__(self, barrier: bool) -> None:
        self.barrier = barrier

    def fetch_s(self, rank: int, traced: TraceRow, fetched: int) -> float:
        return 0.5

    def compute_s(self, rank: int, traced: TraceRow) -> float:
        return 1.0 + 2.0 * rank


@pytest.mark.parametrize("barrier", [False, True])
def test_trainers_wait_for_each_other(barrier: bool, make_trace: MakeTrace, replay: Replay) -> None:
    """At each minibatch with a barrier, else at the end of each epoch; one is pulled ahead."""
    trace = make_trace(accesses(6), part_nodes=(NODES, NODES), epochs=2)
    engine = {"make_time": lambda trace, scenario: Uneven(barrier)}
    result = replay(trace, "always", prefetch_depth=1, engine=engine)
    computed = np.array(result.minibatches.column("compute_s")).reshape(2, 6)
    stalled = np.array(result.minibatches.column("stall_s")).reshape(2, 6)
    assert (stalled == [0.5, 0, 0] * 2).all()
    assert (computed == ([[3.0], [3.0]] if barrier else [[1.0], [3.0]])).all()
    own = 0.5 + 3 * (3.0 if barrier else 1.0)
    seconds = [[epoch["seconds"] for epoch in rank] for rank in result.details["epochs"]]
    assert seconds == [[own, own], [9.5, 9.5]]
    assert result.summary["epoch_seconds"] == 9.5  # of the slowest


def test_measured_latency_is_real_time(trace: Trace, replay: Replay) -> None:
    result = replay(trace, "always", engine={"measure_latency": True})
    seconds = [decision["answer_s"] for decision in result.decisions]
    assert all(0 < answer < 1 for answer in seconds)
    assert len(set(seconds)) > 1


def test_sync_waits_on_the_modelled_clock(trace: Trace, replay: Replay) -> None:
    at_once = replay(trace, "always", rate=100.0)
    waiting = replay(trace, "always:latency_s=0.5", mode="sync", rate=100.0)
    assert counts(waiting) == counts(at_once)
    waited = waiting.minibatches.column("wait_decision_s").to_pylist()
    assert waited[1:40] == pytest.approx([0.5] * 39, abs=0.02)  # less what passed since the pull
    assert waiting.summary["epoch_seconds"] > at_once.summary["epoch_seconds"] + 9 * 0.4


def test_a_deadline_that_passes_is_a_timeout(trace: Trace, replay: Replay) -> None:
    result = replay(trace, "always:latency_s=2,deadline_s=1", mode="sync")
    assert result.summary["valid_share"] == 0
    assert result.summary["fetched"] == replay(trace, "static", policy="score").summary["fetched"]


@pytest.mark.parametrize("controller", ["always:latency_s=0.03", "random:p=0.3", "threshold"])
def test_recorded_answers_give_the_same_counts(
    controller: str, trace: Trace, replay: Replay
) -> None:
    first = replay(trace, controller, rate=100.0)
    again = replay(trace, Spec("recorded", {"run": str(first.run_dir)}), rate=20.0)
    assert counts(again) == counts(first)
    assert sum(counts(first)["replaced"]) > 0


def test_recorded_needs_a_run(trace: Trace, replay: Replay, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="recorded:run=DIRECTORY"):
        replay(trace, "recorded")
    with pytest.raises(SpecError, match=r"there is no run at .*nowhere"):
        replay(trace, f"recorded:run={tmp_path / 'nowhere'}")
    with pytest.raises(ControllerError, match=r"decisions\.jsonl cannot be read"):
        replay(trace, f"recorded:run={tmp_path}")
    (tmp_path / "binary.jsonl").write_bytes(b"PAR1\xff\n")
    with pytest.raises(ControllerError, match=r"binary\.jsonl holds no decisions"):
        replay(trace, f"recorded:run={tmp_path / 'binary.jsonl'}")
    (tmp_path / "broken.jsonl").write_text('{"rank": 0}\n')
    with pytest.raises(ControllerError, match=r"broken\.jsonl:1 is no record of a decision"):
        replay(trace, f"recorded:run={tmp_path / 'broken.jsonl'}")


def test_a_run_that_kept_no_decisions_feeds_nothing_back(trace: Trace, replay: Replay) -> None:
    kept = replay(trace, "random:p=0.5", engine={"record_decisions": False})
    with pytest.raises(ControllerError, match=r"decisions\.jsonl holds no decisions; run again"):
        replay(trace, Spec("recorded", {"run": str(kept.run_dir)}))


def test_a_journal_that_a_crash_cut_short_is_fed_back(
    trace: Trace, replay: Replay, tmp_path: Path
) -> None:
    first = replay(trace, "random:p=0.5")
    assert first.run_dir is not None
    journal = first.run_dir / "ranks" / "decisions-rank=0.jsonl"
    (tmp_path / "cut.jsonl").write_text(journal.read_text() + '{"kind":"decision","rank":0,"que')
    assert read_answers(tmp_path / "cut.jsonl", 0) == read_answers(journal, 0) != {}


FORESIGHT = '''
import json
from rudder import Capabilities, Decision
from rudder.registries import CONTROLLERS
from rudder.replay.foresight import ForesightController


class Told(ForesightController):
    """Replaces every time, and says what it foresaw of that."""

    tags = Capabilities(replay_only=True)

    def foresee(self, future):
        self.future = future

    def _decide(self, observation):
        always = Decision(replace=True)
        outlook = self.future.roll_out(always, always, 6)
        return Decision(replace=True, explanation=json.dumps(outlook))


CONTROLLERS.register("told", Told)
'''


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("policy", ["score", "score-published", "massivegnn:interval=2"])
def test_what_is_foreseen_comes_true(
    mode: str, policy: str, make_trace: MakeTrace, replay: Replay, tmp_path: Path
) -> None:
    seconds = {"sample_s": 0.001, "compute_s": 0.01}
    trace = make_trace(accesses(), part_nodes=(NODES, NODES), seconds=seconds)
    if "told" not in CONTROLLERS:
        (tmp_path / "told.py").write_text(FORESIGHT)
        load_file(tmp_path / "told.py")
    latency_s = 0.02
    result = replay(trace, f"told:latency_s={latency_s}", policy=policy, mode=mode, rate=100.0)
    rows = {(row["rank"], row["step"]): row for row in result.minibatches.to_pylist()}
    pulled, trained = {}, {}  # when
    for rank in range(2):
        clock = TrainerClock(result.scenario.prefetch_depth)
        for step in range(40):
            row = rows[rank, step]
            clock.begin()
            clock.advance(row["sample_s"] + row["wait_decision_s"] + row["fetch_s"])
            pulled[rank, step] = clock.now
            clock.take_over()
            clock.train(clock.taken + row["compute_s"])
            trained[rank, step] = clock.trained
    checked = 0
    for decision in result.decisions:
        rank, at = decision["rank"], decision["applied_at"]
        fetched, took, minibatches = json.loads(decision["decision"]["explanation"])
        if at is None:  # the run ended before the answer arrived
            assert minibatches == fetched == 0
            continue
        looked_at = range(at, min(at + 6, 40))
        assert minibatches == len(looked_at)
        assert fetched == sum(rows[rank, step]["fetched"] for step in looked_at)
        asked = pulled[rank, decision["asked_at"] - 1]
        assert took == pytest.approx(trained[rank, looked_at[-1]] - asked)
        checked += 1
    assert checked > 10


def test_the_oracle_beats_constant_timing_where_timing_matters(
    make_trace: MakeTrace, replay: Replay
) -> None:
    """What is accessed changes at a third of the trace, and a policy that thrashes."""
    calm, later = accesses(20), accesses(40, drift=0, seed=2)
    moved = [
        [sorted((n + 300) % NODES + NODES * (1 - rank) for n in nodes) for nodes in later[rank]]
        for rank in range(2)
    ]
    trace = make_trace(
        [calm[rank] + moved[rank] for rank in range(2)], part_nodes=(NODES, NODES)
    )  # fmt: skip
    fields = {"policy": "score-published", "buffer": 0.25}
    oracle = replay(trace, "timing-oracle", **fields).summary["fetched"]
    constant = {
        spec: replay(trace, spec, **fields).summary["fetched"]
        for spec in ("always", "random:p=0", *(f"fixed:interval={i}" for i in (2, 4, 8, 16, 20)))
    }
    assert oracle < min(constant.values())


def test_regret_to_the_oracle(trace: Trace, replay: Replay) -> None:
    engine = {"oracle": Spec("timing-oracle"), "record_decisions": False}
    summary = replay(trace, "always", policy="score-published", engine=engine).summary
    oracle = replay(trace, "timing-oracle", policy="score-published").summary
    assert summary["timing_oracle_fetched"] == oracle["fetched"]
    assert summary["timing_oracle_epoch_seconds"] == oracle["epoch_seconds"]
    assert summary["regret_to_timing_oracle"] == summary["fetched"] / oracle["fetched"] > 1
    decides_itself = replay(trace, "always", policy="lru", engine=engine).summary
    assert decides_itself["regret_to_timing_oracle"] is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("timing-oracle:horizon=0", "horizon must be a count from 1, found 0"),
        ("timing-oracle:objective=fame", "must be one of communication, seconds, found 'fame'"),
    ],
)
def test_the_oracle_refuses_what_makes_no_sense(
    spec: str, message: str, trace: Trace, replay: Replay
) -> None:
    with pytest.raises(SpecError, match=message):
        replay(trace, spec)


@pytest.mark.parametrize(
    ("spec", "policy", "error", "message"),
    [
        ("timing-orcale", "score", UnknownNameError, "did you mean 'timing-oracle'"),
        ("timing-orcale", "lru", UnknownNameError, "did you mean 'timing-oracle'"),
        ("timing-oracle:horizon=0", "score", SpecError, "horizon must be a count from 1"),
        ("timing-oracle:latency_s=1", "score", SpecError, "latency of the run"),
    ],
)
def test_a_wrong_oracle_is_told_before_the_replay(
    spec: str, policy: str, error: type[Exception], message: str, trace: Trace
) -> None:
    engine = ReplayEngine(trace, oracle=Spec.parse(spec))
    with pytest.raises(error, match=message):
        engine.check(engine.scenario.change(policy=policy), Spec("always"))


def test_an_oracle_goes_with_a_policy_that_decides_itself(trace: Trace) -> None:
    """There is no regret to it then; that is no wrong use."""
    engine = ReplayEngine(trace, oracle=Spec("timing-oracle"))
    engine.check(engine.scenario.change(policy="lru"), Spec("always"))


@pytest.mark.parametrize("controller", ["timing-oracle", "recorded"])
def test_real_training_refuses_what_needs_a_trace(controller: str) -> None:
    with pytest.raises(ReplayOnlyError, match="needs a recorded trace"):
        ENGINES.build("distdgl").check(Scenario(), Spec(controller))
    with pytest.raises(ReplayOnlyError, match="rudder replay TRACE"):
        steer(controller, task())


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"batch_size": 7}, ScenarioError, r"batch_size = 7 \(recorded: 2\)"),
        ({"fan_out": (3, 4)}, ScenarioError, r"fan_out = \(3, 4\)"),
        ({"buffer": NODES + 1}, CapacityError, f"at most {NODES}"),
    ],
)
def test_what_the_trace_fixes_is_refused(
    fields: dict[str, Any], error: type[Exception], message: str, trace: Trace, replay: Replay
) -> None:
    with pytest.raises(error, match=message):
        replay(trace, "always", **fields)


def test_a_trace_whose_recorder_was_killed_is_replayed_as_far_as_it_goes(
    trace: Trace, replay: Replay
) -> None:
    whole = replay(trace, "always")
    folder = trace.folder / "rank=1"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    writer = TraceWriter(trace.folder, trace.manifest, RankFacts(1, (10,) * 4, "seeds"))
    for step, ids in enumerate(accesses()[1][:25]):
        writer.append(TraceRow(step // 10, step, np.array(ids), 5, 2))
    writer._close_part()  # and then it was killed
    result = replay(Trace.open(trace.folder), "always")
    assert result.minibatches.num_rows == 2 * 25
    assert len(result.details["epochs"][0]) == 2  # the third was cut short
    kept = [row for row in whole.minibatches.to_pylist() if row["step"] < 25]
    assert [row["fetched"] for row in kept] == result.minibatches.column("fetched").to_pylist()


def test_long_replays_keep_their_rows_in_order(make_trace: MakeTrace, replay: Replay) -> None:
    trace = make_trace([[[NODES]] * 2500, [[0]] * 2500], part_nodes=(NODES, NODES))
    result = replay(trace, "always", buffer=1, fill="empty", engine={"record_decisions": False})
    rows = result.minibatches
    assert rows.column("step").to_pylist() == 2 * list(range(2500))
    assert rows.column("hits").to_pylist() == 2 * ([0, 0] + [1] * 2498)
    assert result.decisions == []


def test_it_is_an_engine_of_the_registry(trace: Trace) -> None:
    engine = ENGINES.build(Spec("replay", {"trace": str(trace.folder)}))
    assert isinstance(engine, ReplayEngine)
    assert engine.scenario == trace.manifest.scenario
