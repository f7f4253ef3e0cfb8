"""The neighbour sampler on plain arrays."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rudder.sampling import InEdges

NODES = 60


def made(seed: int, edges: int) -> tuple[np.ndarray, np.ndarray, InEdges]:  # type: ignore[type-arg]
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, NODES, (2, edges))
    return src, dst, InEdges.of(src, dst, NODES)


@given(seed=st.integers(0, 1000), edges=st.integers(0, 400), count=st.integers(1, 12))
def test_draws_distinct_edges(seed: int, edges: int, count: int) -> None:
    src, dst, in_edges = made(seed, edges)
    rng = np.random.default_rng(seed)
    assert np.array_equal(np.sort(in_edges.sample(np.arange(NODES), -1, rng)), np.sort(src))
    for node in range(NODES):
        rest = sorted(src[dst == node].tolist())
        few = in_edges.sample(np.array([node]), count, rng).tolist()
        assert len(few) == min(count, len(rest))
        for found in few:
            rest.remove(found)  # fails if one edge was drawn twice


def test_every_neighbour_is_as_likely_as_another() -> None:
    in_edges = InEdges.of(np.arange(1, 11), np.zeros(10, np.int64), 11)
    drawn = in_edges.sample(np.zeros(20_000, np.int64), 4, np.random.default_rng(0))
    assert drawn.size == 80_000
    share = np.bincount(drawn, minlength=11)[1:] / 20_000
    assert np.abs(share - 0.4).max() < 0.02  # standard error 0.0035


def test_input_nodes_are_the_union_of_the_layers() -> None:
    _, _, in_edges = made(0, 200)
    rng = np.random.default_rng(0)
    seeds = np.array([3, 5])
    one = set(in_edges.sample(seeds, -1, rng).tolist()) | {3, 5}
    two = set(in_edges.sample(np.array(sorted(one)), -1, rng).tolist()) | one
    assert in_edges.input_nodes(seeds, (-1, -1), rng).tolist() == sorted(two)
