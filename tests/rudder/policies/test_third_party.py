"""A policy from somebody else's file: registered, built and run like a built-in one."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rudder.buffer import PersistentBuffer
from rudder.decision import Decision
from rudder.errors import PolicyError
from rudder.plugins import load_file
from rudder.policies.base import HookPolicy, Minibatch
from rudder.registries import POLICIES

PLUGIN = '''
import numpy as np
from rudder.policies.base import HookPolicy, PolicyTags
from rudder.registries import POLICIES

class Recent(HookPolicy):
    """Keeps what was used last; takes in what was just fetched."""
    tags = PolicyTags(self_deciding=True)
    def _reset(self, capacity):
        self.used = np.zeros(capacity, np.int64)
    def _update(self, now):
        self.used[now.hit_slots] = now.step
    def _stale(self, now):
        old = np.flatnonzero((now.slot_ids >= 0) & (self.used < now.step))
        return old[np.lexsort((now.slot_ids[old], self.used[old]))]
    def _candidates(self, now):
        return now.missed_ids
    def _placed(self, slots, ids, step):
        self.used[slots] = step

POLICIES.register("test-recent", Recent)
'''


@pytest.fixture(scope="module", autouse=True)
def recent(tmp_path_factory: pytest.TempPathFactory) -> None:
    path: Path = tmp_path_factory.mktemp("plugin") / "recent.py"
    path.write_text(PLUGIN)
    load_file(path)


def test_registered_with_its_docstring() -> None:
    entry = POLICIES.entry("test-recent")
    assert entry.summary == "Keeps what was used last; takes in what was just fetched."
    assert POLICIES.build("test-recent").tags.self_deciding


@given(
    capacity=st.integers(0, 12),
    accesses=st.lists(st.sets(st.integers(0, 25), max_size=20), min_size=1, max_size=30),
)
@settings(max_examples=100, deadline=None)
def test_equals_an_ordered_dictionary(capacity: int, accesses: list[set[int]]) -> None:
    buffer = PersistentBuffer(capacity, 1, POLICIES.build("test-recent"))
    model: OrderedDict[int, None] = OrderedDict()
    for access in accesses:
        nodes = sorted(access)
        plan = buffer.plan(np.array(nodes, np.int64), Decision.keep())
        hits = [n for n in nodes if n in model]
        assert (plan.hits, plan.misses) == (len(hits), len(nodes) - len(hits))
        for n in hits:
            model.move_to_end(n)
        old = len(model) - len(hits)
        misses = [n for n in nodes if n not in model]
        entrants = misses[: old + capacity - len(model)]
        for _ in range(max(len(model) + len(entrants) - capacity, 0)):
            model.popitem(last=False)
        for n in sorted([*hits, *entrants]):  # all used now: among them the order is by id
            model[n] = None
            model.move_to_end(n)
        assert plan.replaced == len(entrants)
        assert plan.fetched == plan.misses
        out = np.zeros((len(nodes), 1), np.float32)
        pulled = plan.pull.astype(np.float32).reshape(-1, 1)
        buffer.commit(plan, pulled, out, np.arange(len(nodes)))
        assert out.ravel().tolist() == nodes
        assert set(buffer.ids().tolist()) == set(model)
        assert buffer.rows().ravel().tolist() == buffer.ids().tolist()


def test_state_is_taken_over() -> None:
    rng = np.random.default_rng(0)
    trace = [np.unique(rng.integers(0, 60, 20)) for _ in range(40)]
    first = PersistentBuffer(16, 0, POLICIES.build("test-recent"))
    second = PersistentBuffer(16, 0, POLICIES.build("test-recent"))
    for nodes in trace[:20]:
        first.commit(first.plan(nodes))
    second.load_state_dict(first.state_dict())
    for nodes in trace[20:]:
        plans = first.plan(nodes), second.plan(nodes)
        assert plans[0].hits == plans[1].hits
        for buffer, plan in zip((first, second), plans, strict=True):
            buffer.commit(plan)
        assert first.ids().tolist() == second.ids().tolist()


class Careless(HookPolicy):
    def __init__(self, stale: list[float], candidates: list[int]) -> None:
        self.answers = stale, candidates

    def _stale(self, now: Minibatch) -> np.ndarray:
        return np.array(self.answers[0])

    def _candidates(self, now: Minibatch) -> np.ndarray:
        return np.array(self.answers[1])


@pytest.mark.parametrize(
    ("stale", "candidates", "message"),
    [
        ([0, 0], [9], r"Careless\._stale returned a slot twice at minibatch 1"),
        ([2], [9], "slots that are free"),
        ([3], [9], r"slots outside 0\.\.2"),
        ([0.5], [9], "float64"),
        ([0], [9, 9], r"Careless\._candidates returned an id twice"),
        ([0], [5], "id 5, which is buffered"),
        ([0], [-1], "an id below 0"),
    ],
)
def test_careless_hooks_are_named(stale: list[float], candidates: list[int], message: str) -> None:
    buffer = PersistentBuffer(3, 0, Careless(stale, candidates))
    buffer.fill(np.array([5, 6]))
    with pytest.raises(PolicyError, match=message):
        buffer.plan(np.array([7]), Decision(replace=True))
