"""Property tests: the buffer against a dictionary model that decays step by step.

The model shares nothing with the buffer: plain dictionaries, one multiplication per node and
minibatch, and full sorts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rudder.buffer import PersistentBuffer
from rudder.decision import Decision
from rudder.policies.base import DecayPolicy, DecayRule, Policy
from rudder.registries import POLICIES

WIDTH = 3
POLICY_SPECS = (
    "score",
    "score-published",
    "massivegnn",
    "massivegnn:alpha=0.2,interval=2",
    "massivegnn:alpha=0.5,interval=1",
    "degree",
)


def feature(node: int) -> list[float]:
    return [node % 1009, node % 97, node // 1009 % 1013]


def features(nodes: Iterable[int]) -> np.ndarray:
    return np.array([feature(int(n)) for n in nodes], np.float32).reshape(-1, WIDTH)


@dataclass
class Naive:
    """The definitions of the policies, written down as directly as possible."""

    capacity: int
    threshold: float = 0.95
    decay: float = 0.95
    on_access: float = 1.0
    gain: float = 1.0
    initial: float = 1.0
    count_decay: float = 0.95
    count_on_miss: float = 0.95
    entrant: str = "count"
    victim: str = "zero"
    refetch: bool = False
    static: bool = False
    step: int = 0
    scores: dict[int, float] = field(default_factory=dict)
    counts: dict[int, float] = field(default_factory=dict)

    def fill(self, nodes: Iterable[int]) -> None:
        self.scores = {int(n): self.initial for n in nodes}

    def tie(self, value: float, decay: float) -> float:
        return round(math.log(value) - self.step * math.log(decay), 9)

    def minibatch(self, nodes: list[int], share: float | None) -> dict[str, Any]:
        self.step += 1
        hits = {n for n in nodes if n in self.scores}
        misses = [n for n in nodes if n not in self.scores]
        stale: list[int] = []
        if not self.static:
            for n, score in self.scores.items():
                new = score * self.on_access + self.gain if n in hits else score * self.decay
                self.scores[n] = new
            missed = set(misses)
            for n in self.counts:
                self.counts[n] *= self.count_on_miss if n in missed else self.count_decay
            for n in misses:
                self.counts[n] = self.counts.get(n, 0.0) + 1
            stale = [n for n, s in self.scores.items() if s < self.threshold * (1 - 1e-9)]
        entrants: list[int] = []
        victims: list[int] = []
        if share is not None and not self.static:
            stale.sort(key=lambda n: (self.tie(self.scores[n], self.decay), n))
            ranked = sorted(
                self.counts, key=lambda n: (-self.tie(self.counts[n], self.count_decay), n)
            )
            free = self.capacity - len(self.scores)
            k = min(math.ceil(share * (len(stale) + free)), len(ranked))
            entrants = ranked[:k]
            victims = stale[: max(k - free, 0)]
        new_scores = {n: self.counts[n] if self.entrant == "count" else 1.0 for n in entrants}
        for n in entrants:
            del self.counts[n]
        for n in victims:
            score = self.scores.pop(n)
            if self.victim == "score":
                self.counts[n] = score
        self.scores |= new_scores
        again = entrants if self.refetch else set(entrants) - set(misses)
        return {
            "hits": len(hits),
            "misses": misses,
            "replaced": len(entrants),
            "again": sorted(again),
            "stale": len(stale),
        }


def naive(spec: str, capacity: int) -> Naive:
    """The built-in policies' parameters, as they are defined, not as the code has them."""
    resolved = POLICIES.resolve(spec)
    if resolved.name == "score-published":
        return Naive(capacity, victim="score", refetch=True)
    if resolved.name == "massivegnn":
        decay = 1 - resolved.params["alpha"]
        threshold = decay ** resolved.params["interval"]
        return Naive(capacity, threshold, decay, gain=0.0, entrant="initial")
    return Naive(capacity, static=resolved.name == "degree")


@st.composite
def access(draw: st.DrawFn) -> dict[str, Any]:
    """A capacity, a fill, and minibatches with decisions over a small set of nodes."""
    nodes = draw(st.integers(3, 40))
    base = draw(st.sampled_from([0, 5, 2**31 - 4, 2**33, 2**62]))
    stride = draw(st.sampled_from([1, 2**20 + 7]))
    capacity = draw(st.integers(0, nodes))
    filled = draw(st.integers(0, capacity))
    order = draw(st.permutations(range(nodes)))
    sizes = st.integers(0, nodes)
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    skew = draw(st.sampled_from([0.0, 1.0, 2.0]))
    weight = (1.0 / np.arange(1, nodes + 1) ** skew) if skew else np.ones(nodes)
    weight /= weight.sum()
    steps = draw(
        st.lists(
            st.tuples(
                sizes,
                st.one_of(st.none(), st.just(1.0), st.floats(0, 1)),
                st.sampled_from([0, 0, 0, 0, 1, 20]),
            ),
            min_size=1,
            max_size=40,
        )
    )
    minibatches = []
    for size, share, idle in steps:
        chosen = rng.choice(nodes, size=size, replace=False, p=weight)
        minibatches += [([], None)] * idle
        minibatches.append((sorted(base + stride * int(i) for i in chosen), share))
    return {
        "capacity": capacity,
        "fill": [base + stride * i for i in order[:filled]],
        "minibatches": minibatches,
    }


def decide(share: float | None) -> Decision | None:
    return None if share is None else Decision(replace=True, share=share)


@pytest.mark.parametrize("spec", POLICY_SPECS)
@given(case=access())
@settings(max_examples=60, deadline=None)
def test_buffer_equals_naive_model(spec: str, case: dict[str, Any]) -> None:
    compare(POLICIES.build(spec), naive(spec, case["capacity"]), case)


class Drawn(DecayPolicy):
    """A rule that somebody else might write."""

    def __init__(self, rule: DecayRule, refetch: bool) -> None:
        self.rule = rule
        self.refetch = refetch


rules = st.builds(
    dict,
    threshold=st.sampled_from([0.3, 0.95, 1.0, 2.5]),
    decay=st.sampled_from([0.5, 0.8, 0.99]),
    on_access=st.sampled_from([0.0, 0.4, 1.0]),
    gain=st.sampled_from([0.0, 1.0, 3.0]),
    count_decay=st.sampled_from([0.5, 0.9, 0.999]),
    count_on_miss=st.sampled_from([0.0, 0.9, 1.0]),
    entrant=st.sampled_from(["count", "initial"]),
    victim=st.sampled_from(["zero", "score"]),
).filter(lambda rule: rule["on_access"] + rule["gain"] > 0)


@given(case=access(), rule=rules, refetch=st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_rule_equals_naive_model(
    case: dict[str, Any], rule: dict[str, Any], refetch: bool
) -> None:
    policy = Drawn(DecayRule(**rule), refetch)
    compare(policy, Naive(case["capacity"], refetch=refetch, **rule), case)


def large_case(seed: int) -> dict[str, Any]:
    """Thousands of nodes in few buckets, then small minibatches with small shares.

    So a choice has to find the order within buckets that are far larger than the work at hand.
    """
    rng = np.random.default_rng(seed)
    nodes, capacity = 4000, 1500
    base = 2**31 - 2000

    def some(size: int) -> list[int]:
        return sorted((base + rng.choice(nodes, size, replace=False)).tolist())

    minibatches: list[tuple[list[int], float | None]] = [(some(2500), None) for _ in range(4)]
    minibatches += [([], None)] * 4
    for _ in range(3):
        minibatches.append((some(5), float(rng.uniform(0, 0.05))))
        minibatches += [(some(int(rng.integers(0, 8))), 0.003) for _ in range(25)]
        minibatches += [(some(1500), 0.4)]
    # Long after, a few old candidates mix with many new ones of nearly the same count.
    minibatches += [([], None)] * 80
    minibatches += [(some(2500), None)]
    minibatches += [(some(3), 0.004) for _ in range(20)]
    fill = (base + rng.choice(nodes, capacity - 5, replace=False)).tolist()
    return {"capacity": capacity, "fill": fill, "minibatches": minibatches}


@pytest.mark.parametrize("spec", ["score", "score-published", "massivegnn:alpha=0.2,interval=2"])
@pytest.mark.parametrize("seed", [0, 1])
def test_large_buckets_are_chosen_from_in_order(spec: str, seed: int) -> None:
    case = large_case(seed)
    compare(POLICIES.build(spec), naive(spec, case["capacity"]), case)


def test_idle_for_thousands_of_minibatches() -> None:
    # 0.95**3000 is about 1e-67: still exact, still in order.
    steps: list[tuple[list[int], float | None]] = [([1, 2, 3], None), ([2, 9], None)]
    steps += [([], None)] * 3000
    steps += [([2, 5, 9], 0.5), ([1], 1.0), ([], 1.0)]
    for spec in ("score", "score-published"):
        case = {"capacity": 3, "fill": [1, 2], "minibatches": steps}
        compare(POLICIES.build(spec), naive(spec, 3), case)


def compare(policy: Policy, model: Naive, case: dict[str, Any]) -> None:
    """Run a case through both, and compare all that can be seen after each minibatch."""
    buffer = PersistentBuffer(case["capacity"], WIDTH, policy)
    buffer.fill(np.array(case["fill"], np.int64), features(case["fill"]))
    model.fill(case["fill"])
    for nodes, share in case["minibatches"]:
        ids = np.array(nodes, np.int64)
        plan = buffer.plan(ids, decide(share))
        wanted = model.minibatch(nodes, share)
        assert plan.hits == wanted["hits"]
        assert plan.misses == len(wanted["misses"])
        assert plan.hits + plan.misses == len(ids)
        assert plan.stale == wanted["stale"]
        assert plan.replaced == wanted["replaced"]
        assert plan.pull[: plan.misses].tolist() == wanted["misses"]
        assert sorted(plan.pull[plan.misses :].tolist()) == wanted["again"]
        assert plan.fetched == len(plan.pull) == plan.misses + len(wanted["again"])

        at = np.random.default_rng(len(ids)).permutation(len(ids) + 2)[: len(ids)]
        out = np.full((len(ids) + 2, WIDTH), -1, np.float32)
        buffer.commit(plan, features(plan.pull), out, at)
        assert (out[at] == features(nodes)).all()
        assert (np.delete(out, at, axis=0) == -1).all()

        held = buffer.ids()
        assert len(set(held.tolist())) == len(held) <= case["capacity"]
        assert set(held.tolist()) == set(model.scores)
        assert plan.occupancy == len(held) / max(case["capacity"], 1)
        assert plan.stale_share == plan.stale / max(case["capacity"], 1)
        assert (buffer.rows() == features(held)).all()
        assert np.allclose(
            buffer.scores(held), [model.scores[int(n)] for n in held], rtol=1e-11, atol=0
        )
        other = np.array(sorted(set(model.counts) - set(model.scores)), np.int64)
        assert np.allclose(
            buffer.counts(other), [model.counts[int(n)] for n in other], rtol=1e-11, atol=0
        )
