"""A small random graph, and its parts as DistDGL reads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rudder.dataset import Graph
from rudder.partition import Partition

NODES, EDGES, WIDTH, CLASSES = 400, 2400, 5, 4


def silent(phase: str, share: float) -> None:
    """A progress callback that nobody watches."""


def make_graph(
    *, multilabel: bool = False, nodes: int = NODES, edges: int = EDGES, seed: int = 0
) -> Graph:
    """Random directed edges, duplicates and self-loops among them; the last ten nodes isolated."""
    rng = np.random.default_rng(seed)
    connected = max(nodes - 10, 1)
    split = rng.permutation(nodes) % 5
    labels: Any = rng.integers(-1, CLASSES, nodes)
    if multilabel:
        labels = rng.integers(0, 2, (nodes, CLASSES)).astype(np.float32)
    return Graph(
        "toy graph",
        rng.integers(0, connected, edges),
        rng.integers(0, connected, edges),
        rng.random((nodes, WIDTH), np.float32),
        labels,
        split < 3,
        split == 3,
        split == 4,
        CLASSES,
    ).validated()


def loaded(partition: Partition, part: int) -> tuple[Any, dict[str, np.ndarray]]:
    """One part as DistDGL's own loader reads it: graph and node data by name."""
    import dgl

    graph, nodes, *_ = dgl.distributed.load_partition(str(partition.config), part)
    return graph, {name.removeprefix("_N/"): data.numpy() for name, data in nodes.items()}


def original_ids(partition: Partition) -> np.ndarray:
    """Original id by global id."""
    parts = range(partition.parts)
    return np.concatenate([loaded(partition, part)[1]["orig_id"] for part in parts])
