"""A graph of one's own, in one file."""

import numpy as np

from rudder.dataset import Graph
from rudder.registries import DATASETS


def ring(nodes: int = 3000, reach: int = 8, seed: int = 0) -> Graph:
    """A ring: each node has its nearest neighbours, and its arc of the ring as its class."""
    draw = np.random.default_rng(seed)
    near = np.tile(np.arange(1, reach + 1), nodes)
    here = np.repeat(np.arange(nodes), reach)
    there = (here + near) % nodes
    labels = np.arange(nodes) * 4 // nodes
    part = draw.choice(3, nodes, p=(0.6, 0.2, 0.2))
    return Graph(
        name="ring",
        src=np.concatenate([here, there]),
        dst=np.concatenate([there, here]),
        features=(np.eye(4)[labels] + draw.normal(size=(nodes, 4))).astype(np.float32),
        labels=labels,
        train=part == 0,
        val=part == 1,
        test=part == 2,
        classes=4,
    )


DATASETS.register("ring", ring, summary="a ring with four classes")
