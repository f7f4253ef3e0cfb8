"""A neighbour sampler on plain arrays, for estimates that need no DGL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class InEdges:
    """In-neighbours of every node: those of ``v`` are ``sources[starts[v]:starts[v + 1]]``."""

    starts: Ids
    sources: Ids

    @classmethod
    def of(cls, src: Ids, dst: Ids, nodes: int) -> InEdges:
        starts = np.zeros(nodes + 1, np.int64)
        np.cumsum(np.bincount(dst, minlength=nodes), out=starts[1:])
        return cls(starts, src[np.argsort(dst, kind="stable")])

    def sample(self, nodes: Ids, count: int, rng: np.random.Generator) -> Ids:
        """Up to ``count`` in-neighbours of each node (-1 = all), no edge twice, in one list."""
        first, degree = self.starts[nodes], self.starts[nodes + 1] - self.starts[nodes]
        whole = degree <= count if count >= 0 else np.ones(nodes.size, np.bool_)
        places = [
            _ranges(first[whole], degree[whole]),
            (first[~whole, None] + _choose(degree[~whole], max(count, 0), rng)).ravel(),
        ]
        found: Ids = self.sources[np.concatenate(places)]
        return found

    def input_nodes(self, seeds: Ids, fan_out: Sequence[int], rng: np.random.Generator) -> Ids:
        """Distinct nodes whose features a minibatch needs, ascending; seeds among them.

        Args:
            fan_out: neighbours per layer, input side first, as DGL's ``NeighborSampler`` takes it.
        """
        nodes: Ids = np.unique(seeds)
        for count in reversed(fan_out):
            nodes = np.union1d(nodes, self.sample(nodes, count, rng))
        return nodes


def _ranges(first: Ids, counts: Ids) -> Ids:
    """``first[i]``, ``first[i] + 1``, … of each ``i``, ``counts[i]`` of them."""
    before = np.cumsum(counts) - counts
    steps = np.arange(int(counts.sum()), dtype=np.int64)
    ranges: Ids = np.repeat(first - before, counts) + steps
    return ranges


def _choose(sizes: Ids, count: int, rng: np.random.Generator) -> Ids:
    """``count`` distinct numbers below each size, every subset alike: int64 ``[sizes, count]``.

    Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", 1987) over all rows at once: it
    looks at what is drawn only, so that a neighbour of half the graph costs no more than others.
    """
    chosen: Ids = np.full((sizes.size, count), -1, np.int64)
    for k in range(count):
        last = sizes - count + k
        drawn = rng.integers(0, last + 1)
        taken = (chosen[:, :k] == drawn[:, None]).any(axis=1)
        chosen[:, k] = np.where(taken, last, drawn)
    return chosen
