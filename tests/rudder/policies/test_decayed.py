"""Golden sequences of the built-in policies, worked out by hand.

Notation: ``2: ab -> h1 m1`` = minibatch 2 samples nodes a and b, one hit, one miss. Scores and
counts are written as they are at the end of the minibatch.
"""

from __future__ import annotations

import numpy as np
import pytest

from rudder.buffer import PersistentBuffer, Plan
from rudder.decision import Decision
from rudder.errors import SpecError
from rudder.policies.base import DecayRule
from rudder.registries import POLICIES

D = 0.95


def counting(spec: str, capacity: int, fill: list[int]) -> PersistentBuffer:
    buffer = PersistentBuffer(capacity, 0, POLICIES.build(spec))
    buffer.fill(np.array(fill, np.int64))
    return buffer


def minibatch(buffer: PersistentBuffer, nodes: list[int], share: float | None = None) -> Plan:
    decision = None if share is None else Decision(replace=True, share=share)
    plan = buffer.plan(np.array(nodes, np.int64), decision)
    buffer.commit(plan)
    return plan


def held(buffer: PersistentBuffer) -> set[int]:
    return set(buffer.ids().tolist())


def facts(plan: Plan) -> tuple[int, int, int, int, int]:
    return plan.hits, plan.misses, plan.stale, plan.replaced, plan.fetched


def score(buffer: PersistentBuffer, node: int) -> float:
    return float(buffer.scores(np.array([node]))[0])


def count(buffer: PersistentBuffer, node: int) -> float:
    return float(buffer.counts(np.array([node]))[0])


def test_score_is_stale_after_two_minibatches_without_access() -> None:
    # 1: no access: 1 * .95 = .95, not below .95. 2: .9025 is. An access in 3: 1.9025, fresh again.
    buffer = counting("score", 2, [10, 20])
    assert [minibatch(buffer, []).stale for _ in range(2)] == [0, 2]
    plan = minibatch(buffer, [10])
    assert facts(plan) == (1, 0, 1, 0, 0)
    assert score(buffer, 10) == pytest.approx(D**2 + 1, rel=1e-12)
    assert score(buffer, 20) == pytest.approx(D**3, rel=1e-12)


def test_score_golden() -> None:
    # Slots 10 20 30, score 1 each.
    # 1: 10 40 50 -> h1 m2. Scores 10: 2, others .95; counts 40: 1, 50: 1. Nothing is stale.
    # 2: 40       -> h0 m1. Scores 10: 1.9, 20 = 30: .9025 (stale). Counts 40: 1.95, 50: .95.
    #    Share .5 of 2 stale slots: one row. Victim: 20 ties with 30, smaller id goes: 20.
    #    Entrant: 40, already in this pull, so fetched = misses = 1. It starts with 1.95.
    # 3: 20 50 60 -> h0 m3. 20 left with count 0, so it has 1 now; 50: .95 * .95 + 1 = 1.9025;
    #    60: 1. Stale: 30 only (.857). Share 1: 30 leaves, 50 comes in.
    # 4: nothing  -> 20 and 60 tie at .95, none is stale (50: 1.807, 40: 1.76, 10: 1.71).
    buffer = counting("score", 3, [10, 20, 30])
    assert facts(minibatch(buffer, [10, 40, 50])) == (1, 2, 0, 0, 2)
    assert facts(minibatch(buffer, [40], 0.5)) == (0, 1, 2, 1, 1)
    assert held(buffer) == {10, 30, 40}
    assert score(buffer, 40) == pytest.approx(1.95, rel=1e-12)
    assert count(buffer, 20) == 0
    assert facts(minibatch(buffer, [20, 50, 60], 1.0)) == (0, 3, 1, 1, 3)
    assert held(buffer) == {10, 40, 50}
    assert facts(minibatch(buffer, [], 1.0)) == (0, 0, 0, 0, 0)
    assert count(buffer, 20) == pytest.approx(D, rel=1e-12) == count(buffer, 60)
    assert score(buffer, 50) == pytest.approx(1.9025 * D, rel=1e-12)


def test_score_fetches_rows_that_are_not_in_the_pull() -> None:
    # 1: 7 and 8 are missed, 2 stale slots come in minibatch 2, which samples 9 only.
    # Counts then: 9: 1, 7 = 8: .95. Two rows: 9, then 7 (tie, smaller id). 9 is in the pull
    # already, 7 is fetched: the pull is 9, 7.
    buffer = counting("score", 2, [1, 2])
    minibatch(buffer, [7, 8])
    plan = minibatch(buffer, [9], 1.0)
    assert facts(plan) == (0, 1, 2, 2, 2)
    assert plan.pull.tolist() == [9, 7]
    assert held(buffer) == {7, 9}
    assert score(buffer, 7) == pytest.approx(D, rel=1e-12)


def test_victim_comes_back_only_when_missed_again() -> None:
    # Both nodes are stale at 2 and replaced by 7 and 8; at 4 these are stale (count 1 at entry,
    # .9025 now), and there is no candidate: the victims have count 0.
    buffer = counting("score", 2, [1, 2])
    minibatch(buffer, [])
    assert minibatch(buffer, [7, 8], 1.0).replaced == 2
    minibatch(buffer, [])
    assert facts(minibatch(buffer, [], 1.0)) == (0, 0, 2, 0, 0)


def test_published_rule_brings_victims_back_at_once() -> None:
    # 2: 1 and 2 (score .9025, tie) leave for 7 and 8 (count 1), whose rows are fetched again:
    #    fetched = 2 misses + 2. The victims are candidates with .9025.
    # 4: 7 and 8 are stale (.9025); candidates 1 and 2 (.9025 * .95**2 = .8145) come back at once,
    #    already stale: at 5 the same again with 7 and 8.
    buffer = counting("score-published", 2, [1, 2])
    minibatch(buffer, [])
    plan = minibatch(buffer, [7, 8], 1.0)
    assert facts(plan) == (0, 2, 2, 2, 4)
    assert plan.pull.tolist() == [7, 8, 7, 8]
    assert count(buffer, 1) == pytest.approx(D**2, rel=1e-12)
    minibatch(buffer, [])
    assert facts(minibatch(buffer, [], 1.0)) == (0, 0, 2, 2, 2)
    assert held(buffer) == {1, 2}
    assert score(buffer, 1) == pytest.approx(D**4, rel=1e-12)
    assert facts(minibatch(buffer, [], 1.0)) == (0, 0, 2, 2, 2)
    assert held(buffer) == {7, 8}


def test_massivegnn_is_stale_after_more_idle_minibatches_than_interval() -> None:
    # alpha .5, interval 2: stale below .25. Node 1 is accessed at 1 and 3 (unchanged), so it has 1,
    # .5, .5, .25 (not below), .125 (stale) at 1..5; node 2 is idle from the start: stale at 3.
    buffer = counting("massivegnn:alpha=0.5,interval=2", 2, [1, 2])
    stale = [minibatch(buffer, nodes).stale for nodes in ([1], [], [1], [], [])]
    assert stale == [0, 0, 1, 1, 2]
    assert score(buffer, 1) == 0.125


def test_massivegnn_entrants_start_with_one() -> None:
    # At 3 node 2 (.125) is stale; 9 was missed at 1, 2, 3 and enters with 1, not with its count.
    buffer = counting("massivegnn:alpha=0.5,interval=2", 2, [1, 2])
    for _ in range(2):
        minibatch(buffer, [1, 9])
    assert facts(minibatch(buffer, [1, 9], 1.0)) == (1, 1, 1, 1, 1)
    assert held(buffer) == {1, 9}
    assert score(buffer, 9) == 1.0


def test_massivegnn_default_waits_sixteen_idle_minibatches() -> None:
    # .95**16 is not below .95**16; the 17th idle minibatch is.
    buffer = counting("massivegnn", 1, [1])
    stale = [minibatch(buffer, []).stale for _ in range(17)]
    assert stale == [0] * 16 + [1]


def test_degree_never_replaces() -> None:
    buffer = counting("degree", 3, [1, 2])
    for nodes in ([1, 7], [7], [7, 8]) * 10:
        plan = minibatch(buffer, nodes, 1.0)
        assert (plan.stale, plan.replaced, plan.fetched) == (0, 0, plan.misses)
    assert held(buffer) == {1, 2}
    assert buffer.scores(np.array([1, 2])).tolist() == [1, 1]


def test_free_slots_go_before_stale_nodes() -> None:
    # 4 slots, nodes 1 and 2. At 2 both are stale, 2 slots are free: 4 replaceable. Share .75 of 4
    # is 3 rows: the 2 free slots, then the slot of node 1 (tie with 2, smaller id). Candidates 7,
    # 8, 9 enter. Stale counts nodes: 2 of 4 slots. Occupancy after it: 4 of 4.
    buffer = counting("score", 4, [1, 2])
    assert minibatch(buffer, []).occupancy == 0.5
    plan = minibatch(buffer, [7, 8, 9], 0.75)
    assert facts(plan) == (0, 3, 2, 3, 3)
    assert (plan.stale_share, plan.occupancy) == (0.5, 1.0)
    assert held(buffer) == {2, 7, 8, 9}


def test_empty_buffer_takes_the_first_misses_in() -> None:
    # Share .5 of 3 free slots: 2 rows; 7, 8, 9 tie at count 1, smaller ids first.
    buffer = counting("score", 3, [])
    assert facts(minibatch(buffer, [7, 8, 9], 0.5)) == (0, 3, 0, 2, 3)
    assert held(buffer) == {7, 8}
    assert facts(minibatch(buffer, [7, 8, 9])) == (2, 1, 0, 0, 1)


@pytest.mark.parametrize(
    "spec",
    [
        "massivegnn:alpha=0",
        "massivegnn:alpha=1",
        "massivegnn:interval=0",
        "massivegnn:interval=1.5",
        "massivegnn:alpha=0.9,interval=500",
        "score:alpha=0.1",
    ],
)
def test_wrong_parameters_are_refused(spec: str) -> None:
    with pytest.raises(SpecError):
        POLICIES.build(spec)


@pytest.mark.parametrize(
    "values",
    [
        {"threshold": 0},
        {"threshold": 1, "decay": 1.0},
        {"threshold": 1, "on_access": 1.5},
        {"threshold": 1, "count_on_miss": -0.5},
        {"threshold": 1, "gain": -1.0},
        {"threshold": 1, "gain": 0.0, "on_access": 0.0},
    ],
)
def test_rule_refuses_what_the_kernels_cannot_order(values: dict[str, float]) -> None:
    with pytest.raises(SpecError):
        DecayRule(**values)


def test_policies_are_listed() -> None:
    assert {"score", "score-published", "massivegnn", "degree"} <= set(POLICIES.names())
    assert POLICIES.resolve("massivegnn").params == {"alpha": 0.05, "interval": 16}
    assert all(POLICIES.entry(name).summary for name in POLICIES.names())
