"""The offline optimum against its definition and against exhaustive search."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rudder.replay.bounds import MinBound, StaticBound

Minibatches = Sequence[Sequence[int]]


def as_ids(nodes: Sequence[int]) -> np.ndarray:
    return np.array(sorted(nodes), np.int64)


def bound(capacity: int, filled: Sequence[int], trace: Minibatches) -> tuple[MinBound, list[int]]:
    found = MinBound(capacity, as_ids(filled))
    return found, [found.add(as_ids(nodes)) for nodes in trace]


def belady(capacity: int, filled: Sequence[int], trace: Minibatches) -> list[int]:
    """Hits per minibatch, word for word: keep what is used next, looking through the whole rest."""
    held, hits = set(filled), []
    for now, nodes in enumerate(trace):
        hits.append(len(held & set(nodes)))

        def next_use(node: int, now: int = now) -> float:
            later = (t for t in range(now + 1, len(trace)) if node in trace[t])
            return next(later, float("inf"))

        held = set(sorted(held | set(nodes), key=lambda n: (next_use(n), n))[:capacity])
    return hits


@st.composite
def cases(draw: st.DrawFn, nodes: int, minibatches: int) -> tuple[int, list[int], list[list[int]]]:
    capacity = draw(st.integers(0, 4))
    some = st.lists(st.integers(0, nodes - 1), unique=True)
    filled = draw(some.map(lambda ids: ids[:capacity]))
    trace = draw(st.lists(some, max_size=minibatches))
    return capacity, filled, trace


@given(cases(nodes=7, minibatches=6))
def test_min_is_the_best_of_every_way_to_keep_rows(
    fewest: Callable[..., int], case: tuple[int, list[int], list[list[int]]]
) -> None:
    assert bound(*case)[0].fetched == fewest(*case)


@given(cases(nodes=12, minibatches=40))
def test_min_keeps_what_is_used_next(case: tuple[int, list[int], list[list[int]]]) -> None:
    assert bound(*case)[1] == belady(*case)


def test_long_traces_grow_its_arrays() -> None:
    rng = np.random.default_rng(0)
    trace = [rng.choice(3000, rng.integers(0, 40), replace=False).tolist() for _ in range(2500)]
    filled = list(range(50))
    found, hits = bound(60, filled, trace)
    assert hits == belady_fast(60, filled, trace)
    assert len(found._below) == len(found._free) + 1  # two int64 per minibatch, and no more


def belady_fast(capacity: int, filled: Sequence[int], trace: Minibatches) -> list[int]:
    """The definition again, next uses found from behind."""
    following: list[dict[int, int]] = []
    seen: dict[int, int] = {}
    for now in range(len(trace) - 1, -1, -1):
        following.append({node: seen.get(node, len(trace)) for node in trace[now]})
        seen |= dict.fromkeys(trace[now], now)
    following.reverse()
    held = {node: seen.get(node, len(trace)) for node in filled}
    hits = []
    for nodes, after in zip(trace, following, strict=True):
        hits.append(len(held.keys() & set(nodes)))
        pool = sorted({**held, **after}.items(), key=lambda item: (item[1], item[0]))
        held = dict(pool[:capacity])
    return hits


def test_rows_that_enter_are_counted_once() -> None:
    # One slot, 5 in it. 1 enters at the first minibatch and serves the next two; 2 and 3 are never
    # found; 1 leaves no room for 5, whose use comes last.
    found, hits = bound(1, [5], [[1, 2], [1], [1, 3], [5]])
    assert (hits, found.replaced, found.fetched) == ([0, 1, 1, 0], 1, 4)


def test_more_rows_than_slots_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rows do not fit into 1 slots"):
        MinBound(1, as_ids([1, 2]))


def test_the_best_static_set_is_what_is_used_most() -> None:
    static = StaticBound()
    for nodes in ([1, 2], [2, 9], [2], [], [1, 9]):
        static.add(as_ids(nodes))
    assert static.best(2).tolist() == [2, 1]  # 2 is used three times, 1 and 9 twice
    assert [static.fetched(capacity) for capacity in (0, 1, 2, 3, 4)] == [7, 4, 2, 0, 0]


@given(cases(nodes=6, minibatches=8))
def test_no_set_serves_more_than_the_best_static_one(
    case: tuple[int, list[int], list[list[int]]],
) -> None:
    capacity, _, trace = case
    static = StaticBound(6)
    for nodes in trace:
        static.add(as_ids(nodes))
    every = itertools.combinations(range(6), min(capacity, 6))
    assert static.fetched(capacity) == min(
        sum(len(set(nodes) - set(kept)) for nodes in trace) for kept in every
    )
