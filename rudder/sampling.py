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
        row = np.repeat(np.arange(nodes.size), degree)
        before = np.cumsum(degree) - degree
        place = np.arange(row.size) - before[row]
        found: Ids = self.sources[first[row] + place]
        if count < 0:
            return found
        # A random order within each row; its first `count` are a sample without replacement.
        order = np.lexsort((rng.random(row.size), row))
        drawn: Ids = found[order[place < count]]
        return drawn

    def input_nodes(self, seeds: Ids, fan_out: Sequence[int], rng: np.random.Generator) -> Ids:
        """Distinct nodes whose features a minibatch needs, ascending; seeds among them.

        Args:
            fan_out: neighbours per layer, input side first, as DGL's ``NeighborSampler`` takes it.
        """
        nodes: Ids = np.unique(seeds)
        for count in reversed(fan_out):
            nodes = np.union1d(nodes, self.sample(nodes, count, rng))
        return nodes
