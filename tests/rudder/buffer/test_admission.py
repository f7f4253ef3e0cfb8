"""Property tests: policies that admit at every minibatch, against sorts of the whole buffer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rudder.buffer import PersistentBuffer
from rudder.decision import Decision
from rudder.errors import BufferUseError, SpecError
from rudder.policies.base import AdmissionRule, AdmittingPolicy, Policy
from rudder.registries import POLICIES

SPECS = (
    "lru",
    "lfu",
    "lfu-decay",
    "lfu-decay:decay=0.5",
    "lookahead:window=1",
    "lookahead:window=3",
    "lookahead",
    "lookahead:window=62",
)
WIDTH = 2
Minibatches = list[list[int]]


def features(nodes: Any) -> np.ndarray:
    ids = np.array(nodes, np.int64).reshape(-1, 1)
    return np.concatenate([ids % 1009, ids // 1009 % 1013], axis=1).astype(np.float32)


@dataclass
class Naive:
    """The rule as it is written down: everything is counted, decayed and sorted each time."""

    spec: str
    capacity: int
    step: int = 0
    held: set[int] = field(default_factory=set)
    counts: dict[int, float] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        resolved = POLICIES.resolve(self.spec)
        self.kind = resolved.name
        self.decay = resolved.params.get("decay", 1.0)

    def fill(self, nodes: list[int]) -> None:
        self.held = set(nodes)
        self.counts = dict.fromkeys(nodes, 1.0)
        self.last = dict.fromkeys(nodes, 0)

    def worth(self, node: int, ahead: Minibatches) -> tuple[float, float]:
        uses = [k for k, nodes in enumerate(ahead) if node in nodes]
        near = -uses[0] if uses else -math.inf
        if self.kind == "lru":
            return near, self.last[node]
        if self.kind == "lfu-decay":
            return near, round(math.log(self.counts[node]) - self.step * math.log(self.decay), 9)
        return near, self.counts[node]

    def minibatch(self, nodes: list[int], ahead: Minibatches) -> dict[str, Any]:
        self.step += 1
        hits = [n for n in nodes if n in self.held]
        misses = [n for n in nodes if n not in self.held]
        for n in self.counts:
            self.counts[n] *= self.decay
        for n in nodes:
            self.counts[n] = self.counts.get(n, 0.0) + 1
            self.last[n] = self.step
        worth = {n: self.worth(n, ahead) for n in {*self.held, *misses}}
        idle = [n for n in self.held if n not in nodes and worth[n][0] == -math.inf]
        best = sorted(misses, key=lambda n: (-worth[n][0], -worth[n][1], n))
        free = self.capacity - len(self.held)
        entrants, best = best[:free], best[free:]
        victims = []
        for victim in sorted(self.held, key=lambda n: (worth[n], n)):
            if not best or worth[best[0]] <= worth[victim]:
                break
            victims.append(victim)
            entrants.append(best.pop(0))
        self.held = (self.held - set(victims)) | set(entrants)
        return {"hits": len(hits), "misses": misses, "entrants": entrants, "stale": len(idle)}


@st.composite
def access(draw: st.DrawFn) -> dict[str, Any]:
    nodes = draw(st.integers(3, 40))
    base = draw(st.sampled_from([0, 5, 2**31 - 4, 2**62]))
    stride = draw(st.sampled_from([1, 2**20 + 7]))
    capacity = draw(st.integers(0, nodes))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    weight = 1.0 / np.arange(1, nodes + 1) ** draw(st.sampled_from([0.0, 0.6, 1.5]))
    weight /= weight.sum()
    sizes = draw(st.lists(st.integers(0, nodes), min_size=1, max_size=90))
    order = rng.permutation(nodes)[: draw(st.integers(0, capacity))]

    def some(size: int) -> list[int]:
        chosen = rng.choice(nodes, size, replace=False, p=weight)
        return sorted(base + stride * int(i) for i in chosen)

    return {
        "capacity": capacity,
        "fill": [base + stride * int(i) for i in order],
        "minibatches": [some(size) for size in sizes],
        "eager": draw(st.booleans()),
    }


def compare(spec: str, case: dict[str, Any]) -> None:
    """Run a case through both, and compare all that can be seen after each minibatch."""
    policy: Policy = POLICIES.build(spec)
    buffer = PersistentBuffer(case["capacity"], WIDTH, policy)
    buffer.fill(np.array(case["fill"], np.int64), features(case["fill"]))
    model = Naive(spec, case["capacity"])
    model.fill(case["fill"])
    minibatches: Minibatches = case["minibatches"]
    announced = 0
    for step, nodes in enumerate(minibatches):
        if case["eager"]:
            last = min(step + policy.window + 1, len(minibatches))
            for ahead in minibatches[announced:last]:
                buffer.announce(np.array(ahead, np.int64))
            announced = max(announced, last)
        ids = np.array(nodes, np.int64)
        # What a controller says is not heard.
        plan = buffer.plan(ids, Decision(replace=True, share=0.1) if step % 2 else None)
        wanted = model.minibatch(nodes, minibatches[step + 1 : announced] if policy.window else [])
        assert plan.hits == wanted["hits"]
        assert plan.pull.tolist() == wanted["misses"]
        assert plan.fetched == plan.misses
        assert plan.replaced == len(wanted["entrants"])
        assert plan.stale == wanted["stale"]
        out = np.full((len(ids), WIDTH), -1, np.float32)
        buffer.commit(plan, features(plan.pull), out, np.arange(len(ids)))
        assert (out == features(nodes)).all()
        held = buffer.ids()
        assert set(held.tolist()) == model.held
        assert len(held) == len(model.held)
        assert (buffer.rows() == features(held)).all()
        values = model.last if model.kind == "lru" else model.counts
        assert np.allclose(buffer.scores(held), [values[int(n)] for n in held], rtol=1e-11)
        gone = np.array(sorted(set(model.counts) - model.held), np.int64)
        assert np.allclose(buffer.counts(gone), [values[int(n)] for n in gone], rtol=1e-11)


@pytest.mark.parametrize("spec", SPECS)
@given(case=access())
@settings(max_examples=60, deadline=None)
def test_buffer_equals_naive_model(spec: str, case: dict[str, Any]) -> None:
    compare(spec, case)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("seed", [0, 1])
def test_large_buffer_with_small_minibatches(spec: str, seed: int) -> None:
    """Buckets far larger than the work at hand, many ties, then minibatches above the capacity."""
    rng = np.random.default_rng(seed)
    sizes = [2000, *[5] * 30, *[400] * 6, 1, 0, 1500, *[40] * 20]
    minibatches = [sorted(rng.choice(3000, n, replace=False).tolist()) for n in sizes]
    case = {
        "capacity": 1200,
        "fill": rng.choice(3000, 1190, replace=False).tolist(),
        "minibatches": minibatches,
        "eager": True,
    }
    compare(spec, case)


@given(case=access())
@settings(max_examples=60, deadline=None)
def test_a_window_over_the_whole_trace_is_the_offline_optimum(case: dict[str, Any]) -> None:
    """Belady's MIN with bypass, from the same fill: no policy misses less."""
    case["minibatches"] = case["minibatches"][:60]
    minibatches = case["minibatches"]
    buffer = PersistentBuffer(case["capacity"], 0, POLICIES.build("lookahead:window=62"))
    buffer.fill(np.array(case["fill"], np.int64))
    held, wanted, found = set(case["fill"]), 0, 0
    for nodes in minibatches:
        buffer.announce(np.array(nodes, np.int64))
    for step, nodes in enumerate(minibatches):
        wanted += len(set(nodes) - held)

        def next_use(node: int, after: int = step) -> int:
            later = (k for k in range(after + 1, len(minibatches)) if node in minibatches[k])
            return next(later, len(minibatches))

        held = set(sorted({*held, *nodes}, key=next_use)[: case["capacity"]])
        plan = buffer.plan(np.array(nodes, np.int64))
        buffer.commit(plan)
        found += plan.fetched
    assert found == wanted


def test_a_loop_larger_than_the_buffer() -> None:
    """12 nodes in a circle, one per minibatch, 8 slots, 20 rounds.

    LRU always throws out what comes next. The others let the first eight in and then let nobody in
    who is worth as much as they are: 12 misses in the first round, 4 in each of the others, which
    is the least possible.
    """
    trace = [[i % 12] for i in range(240)]

    def misses(spec: str) -> int:
        policy = POLICIES.build(spec)
        buffer = PersistentBuffer(8, 0, policy)
        found = 0
        for step, nodes in enumerate(trace):
            first = step + policy.window if step else 0
            for ahead in trace[first : step + policy.window + 1]:
                buffer.announce(np.array(ahead))
            plan = buffer.plan(np.array(nodes))
            buffer.commit(plan)
            found += plan.fetched
        return found

    assert misses("lru") == len(trace)
    for spec in ("lfu", "lookahead:window=1", "lookahead", "lookahead:window=62"):
        assert misses(spec) == 12 + 19 * 4, spec


def test_announcing_is_checked() -> None:
    buffer = PersistentBuffer(4, 0, POLICIES.build("lookahead:window=1"))
    buffer.announce(np.array([1, 2]))
    buffer.announce(np.array([3]))
    with pytest.raises(BufferUseError, match="window of 1 the next one must be planned first"):
        buffer.announce(np.array([4]))
    with pytest.raises(BufferUseError, match="plan in the order of announcing"):
        buffer.plan(np.array([3]))
    with pytest.raises(BufferUseError, match="distinct, ascending"):
        buffer.announce(np.array([2, 1]))
    assert buffer.plan(np.array([1, 2])).misses == 2
    with pytest.raises(BufferUseError, match="filled once, before"):
        buffer.fill(np.array([5]))


@given(case=access(), again=st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_a_withdrawn_announcement_leaves_no_trace(case: dict[str, Any], again: int) -> None:
    """Announcements that are withdrawn, and made anew, are as good as made once."""
    spec, minibatches = "lookahead:window=4", case["minibatches"]
    buffers = [PersistentBuffer(case["capacity"], 0, POLICIES.build(spec)) for _ in range(2)]
    for buffer in buffers:
        buffer.fill(np.array(case["fill"], np.int64))
    announced = 0
    for step, nodes in enumerate(minibatches):
        if step % again == 0:
            buffers[1].withdraw()
            buffers[1].announce(np.array(minibatches[-1], np.int64))
            buffers[1].withdraw()
            for ahead in minibatches[step:announced]:
                buffers[1].announce(np.array(ahead, np.int64))
        last = min(step + 5, len(minibatches))
        for ahead in minibatches[announced:last]:
            for buffer in buffers:
                buffer.announce(np.array(ahead, np.int64))
        announced = max(announced, last)
        plans = [buffer.plan(np.array(nodes, np.int64)) for buffer in buffers]
        for buffer, plan in zip(buffers, plans, strict=True):
            buffer.commit(plan)
        assert plans[0].pull.tolist() == plans[1].pull.tolist()
        assert set(buffers[0].ids().tolist()) == set(buffers[1].ids().tolist())


def test_policies_without_a_window_take_no_note_of_announcements() -> None:
    for spec in ("lfu", "score", "degree"):
        buffer = PersistentBuffer(4, 0, POLICIES.build(spec))
        for _ in range(3):
            buffer.announce(np.array([7]))
        assert buffer.plan(np.array([1])).misses == 1


def test_a_window_needs_a_ledger_that_listens() -> None:
    class Deaf(Policy):
        window = 2

        def ledger(self, capacity: int) -> Any:
            return POLICIES.build("score").ledger(capacity)

    with pytest.raises(BufferUseError, match="lacks the methods"):
        PersistentBuffer(4, 0, Deaf())


@pytest.mark.parametrize("spec", SPECS)
def test_state_is_taken_over(spec: str) -> None:
    rng = np.random.default_rng(3)
    trace = [np.unique(rng.zipf(1.3, 30) % 200) for _ in range(80)]
    first, second = (PersistentBuffer(20, 0, POLICIES.build(spec)) for _ in range(2))
    first.fill(np.arange(15))

    def run(buffer: PersistentBuffer, nodes: np.ndarray) -> list[Any]:
        plan = buffer.plan(nodes)
        buffer.commit(plan)
        return [plan.pull.tolist(), plan.stale, plan.replaced, sorted(buffer.ids().tolist())]

    for nodes in trace[:40]:
        run(first, nodes)
    second.load_state_dict(first.state_dict())
    for nodes, ahead in pairwise(trace[40:]):
        for buffer in (first, second) if nodes is trace[40] else ():
            buffer.announce(nodes)
        for buffer in (first, second):
            buffer.announce(ahead)
        assert run(first, nodes) == run(second, nodes)


@pytest.mark.parametrize(
    "rule",
    [
        {"order": "count", "window": 63},
        {"order": "count", "window": True},
        {"order": "count", "window": -1},
        {"order": "count", "decay": 0.0},
        {"order": "recency", "window": 3},
        {"order": "count", "decay": 0.9, "window": 3},
    ],
)
def test_rules_are_checked(rule: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"window|decay"):
        AdmissionRule(**rule)


def test_a_policy_is_its_rule() -> None:
    class Recent(AdmittingPolicy):
        rule = AdmissionRule("recency")

    buffer = PersistentBuffer(2, 0, Recent())
    for nodes in ([1, 2], [3], [2]):
        buffer.commit(buffer.plan(np.array(nodes)))
    assert sorted(buffer.ids().tolist()) == [2, 3]  # 1 ties with 2: the smaller id goes
