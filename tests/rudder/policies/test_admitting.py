"""Policies that decide themselves, and the presampled one: sequences worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rudder.buffer import PersistentBuffer
from rudder.decision import Decision
from rudder.errors import SpecError
from rudder.registries import POLICIES

# Two slots, filled with nodes 1 and 2.
TRACE = [[1], [3], [1], [3], [2], [4]]


def run(spec: str) -> tuple[list[set[int]], int]:
    """What is held after each minibatch, and what was fetched in all."""
    policy = POLICIES.build(spec)
    buffer = PersistentBuffer(2, 0, policy)
    buffer.fill(np.array([1, 2]))
    held, fetched = [], 0
    for step, nodes in enumerate(TRACE):
        first = step + policy.window if step else 0
        for coming in TRACE[first : step + policy.window + 1]:
            buffer.announce(np.array(coming))
        plan = buffer.plan(np.array(nodes))
        buffer.commit(plan)
        held.append(set(buffer.ids().tolist()))
        fetched += plan.fetched
    return held, fetched


def test_lru() -> None:
    # 1 hits; 3 comes for 2, which was used last by the fill; 1 and 3 hit; 2 comes for 1, idle for
    # longer than 3; 4 comes for 3.
    held, fetched = run("lru")
    assert held == [{1, 2}, {1, 3}, {1, 3}, {1, 3}, {2, 3}, {2, 4}]
    assert fetched == 3


def test_lfu() -> None:
    # Counts of the fill are 1. 1 hits (2). 3 has 1, no more than 2 has: it stays out. 1 hits (3).
    # 3 has 2 now, more than 2's 1: it comes in. 2 has 2, no more than 3 has. 4 has 1.
    held, fetched = run("lfu")
    assert held == [{1, 2}, {1, 2}, {1, 2}, {1, 3}, {1, 3}, {1, 3}]
    assert fetched == 4


def test_lfu_decay() -> None:
    # Halved each time. At 2: 1 has (.5 + 1) / 2 = .75, 2 has .25, 3 has 1 and comes in for 2.
    # At 3: 1 hits (1.375), 3 has .5. At 4: 1 has .6875, 3 hits (1.25). At 5: 2 has 1/32 + 1, 1 has
    # .34375: 2 comes in. At 6: 4 has 1, 3 has .3125.
    held, fetched = run("lfu-decay:decay=0.5")
    assert held == [{1, 2}, {1, 3}, {1, 3}, {1, 3}, {2, 3}, {2, 4}]
    assert fetched == 3


def test_lookahead() -> None:
    # Two ahead. At 2: 3 is needed at 4, 1 at 3, 2 not before 5: 3 comes for 2. At 3: 1 hits, nobody
    # needs it any more. At 4: 3 hits. At 5: 2 (two uses) ties with 3, less than 1's three: out.
    # At 6: 4 has one.
    held, fetched = run("lookahead:window=2")
    assert held == [{1, 2}, {1, 3}, {1, 3}, {1, 3}, {1, 3}, {1, 3}]
    assert fetched == 3
    # One ahead: at 2 nobody needs 3 or 2, counts tie, 3 stays out; it misses again, with count 2,
    # and comes in at 4, unless 2 is needed next, which it is: 1, needed no more, has 3, so that 3
    # stays out. 2 hits.
    held, fetched = run("lookahead:window=1")
    assert held == [{1, 2}, {1, 2}, {1, 2}, {1, 2}, {1, 2}, {1, 2}]
    assert fetched == 3


def test_presampled_never_replaces() -> None:
    policy = POLICIES.build("presampled:minibatches=3")
    assert policy.presample == 3
    buffer = PersistentBuffer(2, 0, policy)
    buffer.fill(np.array([1, 2]))
    for _ in range(5):
        plan = buffer.plan(np.array([2, 3]), Decision(replace=True))
        buffer.commit(plan)
        assert (plan.hits, plan.stale, plan.replaced) == (1, 0, 0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lookahead:window=0", "lfu looks at none ahead"),
        ("lookahead:window=63", "0..62"),
        ("lookahead:window=2.5", "whole number"),
        ("lookahead:window=true", "whole number"),
        ("lfu-decay:decay=1", "lfu has none"),
        ("lfu-decay:decay=0", "must lie in"),
        ("presampled:minibatches=0", "1 or more"),
        ("presampled:minibatches=1.5", "whole number"),
        ("lru:window=3", "window"),
    ],
)
def test_parameters_are_checked(spec: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        POLICIES.build(spec)
