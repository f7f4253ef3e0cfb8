"""Synthetic graphs: R-MAT (skewed degrees) and the stochastic block model (communities).

Equal parameters give equal graphs. Labels depend on features and on structure, so that training
has something to learn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rudder.dataset import Graph
from rudder.errors import DatasetError, UsageError

from .cleaning import EdgeRules, clean_edges
from .features import Floats, Int64s, neighbour_mean
from .memory import available_memory, gigabytes
from .seeds import GRAPH, generator
from .splits import random_splits

DRAW = 1 << 22
"""Edges drawn at a time, to bound memory."""
_LEAST_A = 0.01
_MOST_DEGREE = 1e12


def rmat(
    nodes: int = 10_000,
    edges: int | None = None,
    degree: float | None = None,
    features: int = 64,
    classes: int = 8,
    seed: int = 0,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    train: float = 0.6,
    val: float = 0.2,
) -> Graph:
    """R-MAT (Chakrabarti, Zhan, Faloutsos, SDM 2004) with planted labels; undirected.

    Each drawn pair descends a quadtree with probabilities a, b, c and 1-a-b-c; pairs beyond
    ``nodes`` are drawn again; node numbers are shuffled. A node's label is the largest coordinate
    of its own Gaussian vector plus twice the mean of its neighbours'; its features are a random
    projection of its own vector with noise: to read the label one has to look at the neighbours.

    Args:
        edges: pairs drawn, before self-loops and duplicates are removed and reverses added.
        degree: mean degree before cleaning, instead of ``edges`` (default 16).
        features: width F.
        train, val: shares of the nodes; the rest is for testing.

    Raises:
        UsageError: values out of range, or both ``edges`` and ``degree``.
        DatasetError: not enough memory (with numbers).
    """
    _check_sizes(nodes, features, classes, degree)
    if edges is not None and degree is not None:
        raise UsageError("rmat takes edges or degree, not both")
    if edges is not None and edges < 0:
        raise UsageError(f"edges={edges} must be at least 0")
    # Pairs in the first quadrant are never beyond the nodes; almost without it one could draw for
    # ever, and with nothing else every pair is a self-loop.
    if not _LEAST_A <= a < 1 or min(b, c) < 0 or a + b + c > 1:
        raise UsageError(
            f"a={a}, b={b}, c={c} must be shares with a + b + c <= 1, and a at least {_LEAST_A} "
            "and below 1"
        )
    pairs = round(nodes * (16 if degree is None else degree) / 2) if edges is None else edges
    _check_memory("rmat", nodes, features + classes, pairs)
    rng = generator(seed, GRAPH)
    src, dst = _rmat_pairs(rng, nodes, pairs, a, b, c)
    shuffle = rng.permutation(nodes)
    src, dst, cleaning = clean_edges(shuffle[src], shuffle[dst], nodes, EdgeRules(), "rmat")

    own = rng.standard_normal((nodes, classes), dtype=np.float32)
    labels = np.argmax(own + 2 * neighbour_mean(src, dst, own), axis=1).astype(np.int64)
    return _graph("rmat", src, dst, own, labels, features, cleaning, seed, train, val, rng)


def sbm(
    nodes: int = 10_000,
    classes: int = 8,
    degree: float = 16,
    mixing: float = 0.2,
    p_in: float | None = None,
    p_out: float | None = None,
    features: int = 64,
    seed: int = 0,
    train: float = 0.6,
    val: float = 0.2,
) -> Graph:
    """Stochastic block model with one block of equal size per class; undirected, label = block.

    A node's features are a random projection of its block's unit vector with noise of three times
    its length: neighbours, averaged, tell more than the node itself.

    Args:
        degree, mixing: mean degree, and the share of a node's edges that leave its block.
        p_in, p_out: probability of an edge within a block and between blocks, both instead of
            ``degree`` and ``mixing``.
        features: width F.
        train, val: shares of the nodes; the rest is for testing.

    Raises:
        UsageError: values out of range, or more edges than pairs.
        DatasetError: not enough memory (with numbers).
    """
    _check_sizes(nodes, features, classes, degree)
    if classes > nodes:
        raise UsageError(f"classes={classes} blocks need as many nodes, found nodes={nodes}")
    _check_memory("sbm", nodes, features + classes, round(nodes * degree / 2))
    rng = generator(seed, GRAPH)
    ends = np.arange(1, classes + 1) * nodes // classes  # one past the last node of each block
    block = np.searchsorted(ends, np.arange(nodes), side="right")
    node = np.arange(nodes)
    inner, outer = ends[block] - node - 1, nodes - ends[block]  # partners with larger numbers
    p_in, p_out = _probabilities(int(inner.sum()), int(outer.sum()), nodes, degree, mixing,
                                 p_in, p_out)  # fmt: skip
    within = _distinct_pairs(rng, node + 1, inner, p_in)
    between = _distinct_pairs(rng, ends[block], outer, p_out)
    src = np.concatenate([within[0], between[0]])
    dst = np.concatenate([within[1], between[1]])
    shuffle = rng.permutation(nodes)
    labels = np.empty(nodes, dtype=np.int64)
    labels[shuffle] = block
    src, dst, cleaning = clean_edges(shuffle[src], shuffle[dst], nodes, EdgeRules(), "sbm")

    own = np.eye(classes, dtype=np.float32)[labels]
    own += 3 / np.sqrt(classes) * rng.standard_normal(own.shape, dtype=np.float32)
    return _graph("sbm", src, dst, own, labels, features, cleaning, seed, train, val, rng)


def _graph(
    name: str,
    src: Int64s,
    dst: Int64s,
    own: Floats,
    labels: Int64s,
    features: int,
    cleaning: dict[str, int],
    seed: int,
    train: float,
    val: float,
    rng: np.random.Generator,
) -> Graph:
    """Features from each node's own vector [N, C] by a random projection with a little noise."""
    nodes, classes = own.shape
    mix = rng.standard_normal((classes, features), dtype=np.float32) / np.sqrt(classes)
    noise = 0.05 * rng.standard_normal((nodes, features), dtype=np.float32)
    splits = random_splits(np.ones(nodes, dtype=np.bool_), train, val, seed)
    meta = {"source": f"generated by {name}", "licence": "none needed"}
    return Graph(
        name, src, dst, (own @ mix + noise).astype(np.float32), labels, *splits, classes, cleaning,
        meta,
    ).validated()  # fmt: skip


def _rmat_pairs(
    rng: np.random.Generator, nodes: int, pairs: int, a: float, b: float, c: float
) -> tuple[Int64s, Int64s]:
    levels = max(int(nodes - 1).bit_length(), 1)
    src, dst = np.empty(pairs, dtype=np.int64), np.empty(pairs, dtype=np.int64)
    done = 0
    while done < pairs:
        count = min(DRAW, max(pairs - done, 1024))
        u, v = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        for _ in range(levels):
            draw = rng.random(count)
            low = draw >= a + b  # the lower half: quadrants c and d
            right = ((draw >= a) & ~low) | (draw >= a + b + c)
            u, v = 2 * u + low, 2 * v + right
        inside = np.flatnonzero((u < nodes) & (v < nodes))[: pairs - done]
        src[done : done + inside.size], dst[done : done + inside.size] = u[inside], v[inside]
        done += inside.size
    return src, dst


def _distinct_pairs(
    rng: np.random.Generator, first: Int64s, count: npt.NDArray[np.int64], probability: float
) -> tuple[Int64s, Int64s]:
    """Each pair (u, first[u] + 0 .. count[u]-1) with the given probability, independently."""
    total = int(count.sum())
    size = rng.binomial(total, probability)
    chosen = np.sort(rng.choice(total, size, replace=False, shuffle=False)) if size else first[:0]
    past = np.cumsum(count)
    u = np.searchsorted(past, chosen, side="right")
    return u, first[u] + chosen - (past - count)[u]


def _probabilities(
    inner: int,
    outer: int,
    nodes: int,
    degree: float,
    mixing: float,
    p_in: float | None,
    p_out: float | None,
) -> tuple[float, float]:
    if (p_in is None) != (p_out is None):
        raise UsageError("sbm takes p_in and p_out together, or degree and mixing")
    if p_in is None or p_out is None:
        if not 0 <= mixing <= 1:
            raise UsageError(f"mixing={mixing} must be a share, 0..1")
        edges = nodes * degree / 2
        p_in, p_out = edges * (1 - mixing) / max(inner, 1), edges * mixing / max(outer, 1)
        if max(p_in, p_out) > 1:
            raise UsageError(
                f"degree={degree} with mixing={mixing} needs more edges than there are pairs "
                f"({inner} within blocks, {outer} between); lower degree or classes, or add nodes"
            )
    if not (0 <= p_in <= 1 and 0 <= p_out <= 1):
        raise UsageError(f"p_in={p_in} and p_out={p_out} must be probabilities, 0..1")
    return p_in, p_out


def _check_memory(name: str, nodes: int, width: int, pairs: int) -> None:
    """Refuse what cannot be held at all: one copy of the features, the pairs in both directions."""
    needed, available = 4 * width * nodes + 32 * pairs, available_memory()
    if needed > available:
        raise DatasetError(
            f"{name} with {nodes} nodes and {pairs} pairs needs at least {gigabytes(needed)} of "
            f"memory and {gigabytes(available)} are available; ask for a smaller graph"
        )


def _check_sizes(nodes: int, features: int, classes: int, degree: float | None) -> None:
    for name, value, least in (("nodes", nodes, 2), ("features", features, 1),
                               ("classes", classes, 2)):  # fmt: skip
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{name}={value} must be a whole number of at least {least}")
    if degree is not None and not 0 <= degree < _MOST_DEGREE:
        raise UsageError(f"degree={degree} must be at least 0 and below {_MOST_DEGREE:g}")
