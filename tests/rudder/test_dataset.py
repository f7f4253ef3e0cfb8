"""Graphs: every inconsistency is found before anything is trained on it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from rudder.dataset import Graph
from rudder.errors import DatasetError


def small(**changes: Any) -> Graph:
    """Four nodes in a ring, three classes."""
    mask = np.eye(4, dtype=bool)
    values: dict[str, Any] = {
        "name": "ring",
        "src": np.array([0, 1, 2, 3], dtype=np.int64),
        "dst": np.array([1, 2, 3, 0], dtype=np.int64),
        "features": np.ones((4, 2), dtype=np.float32),
        "labels": np.array([0, 1, 2, -1], dtype=np.int64),
        "train": mask[0],
        "val": mask[1],
        "test": mask[2],
        "classes": 3,
    }
    return Graph(**{**values, **changes})


def test_a_sound_graph_is_itself() -> None:
    graph = small()
    assert graph.validated() is graph
    assert (graph.nodes, graph.edges, graph.multilabel) == (4, 4, False)
    assert small(labels=np.zeros((4, 3), dtype=np.float32)).validated().multilabel


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src": np.array([0, 1, 2])}, "alike"),
        ({"src": np.array([0, 1, 2, 4])}, "0..3"),
        ({"src": np.array([0, 1, 2, -1])}, "0..3"),
        ({"features": np.ones((4, 2))}, "float32"),
        ({"features": np.full((4, 2), np.nan, dtype=np.float32)}, "features of 4 nodes hold NaN"),
        ({"features": np.ones((5, 2), dtype=np.float32)}, "labels has 4 rows for 5 nodes"),
        ({"labels": np.array([0, 1, 2, 3])}, "label 3 but 3 classes"),
        ({"train": np.array([True, True, False, False])}, "overlap"),
        ({"val": np.array([True])}, "val has 1 rows for 4 nodes"),
        ({"node_ids": np.array([7])}, "node_ids has 1 rows"),
        ({"node_ids": np.arange(4.0)}, r"node_ids must be int64 \[N\], found float64"),
        ({"src": np.arange(4.0), "dst": np.arange(4.0)}, "int64, found float64"),
        ({"src": np.arange(4, dtype=np.int32)}, "int64, found int32"),
        ({"features": np.float32(1)}, r"float32 \[N, F\], found float32 \[\]"),
        ({"features": np.ones((4, 0), dtype=np.float32)}, "no columns"),
        # As indices, 0 and 1 would mean two nodes.
        ({"train": np.array([1, 0, 0, 0])}, r"train must be bool \[N\], found int64"),
        ({"val": np.eye(4, dtype=bool)}, r"val must be bool \[N\], found bool \[4, 4\]"),
        ({"train": np.eye(4, dtype=bool)[2]}, "overlap .first: node 2"),
        ({"val": np.eye(4, dtype=bool)[2]}, "overlap .first: node 2"),
        ({"labels": np.array([0, 1, 2, np.nan])}, r"labels must be int64 \[N\], found float64"),
        ({"labels": np.array([0, 1, 2, -2])}, "label -2: unlabelled is -1"),
        ({"labels": np.ones((4, 2), dtype=np.float32)}, "2 columns but 3 classes"),
        ({"labels": np.full((4, 3), 2, dtype=np.float32)}, "labels must be 0 or 1"),
        ({"labels": np.full((4, 3), np.nan, dtype=np.float32)}, "labels must be 0 or 1"),
        ({"labels": np.ones((4, 3), dtype=np.int64)}, r"labels must be float32 \[N, C\]"),
    ],
)
def test_each_inconsistency_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match="graph 'ring'.*" + message):
        small(**changes).validated()


def test_a_graph_without_nodes_is_none() -> None:
    none: dict[str, Any] = {
        **dict.fromkeys(("src", "dst", "labels"), np.empty(0, dtype=np.int64)),
        **dict.fromkeys(("train", "val", "test"), np.empty(0, dtype=bool)),
    }
    with pytest.raises(DatasetError, match="no nodes"):
        small(features=np.empty((0, 2), dtype=np.float32), **none).validated()


def test_every_inconsistency_is_named_at_once() -> None:
    wrong = small(src=np.array([0, 1, 2, 9]), labels=np.array([7] * 4), train=np.array([True]))
    with pytest.raises(DatasetError, match=r"found 9; train has 1 rows.*; label 7 but 3 classes"):
        wrong.validated()


def test_the_digest_follows_the_content_and_nothing_else() -> None:
    graph = small()
    assert graph.digest() == small(name="other", meta={"source": "x"}).digest()
    for field in ("src", "features", "labels", "train"):
        changed = getattr(graph, field).copy()
        changed[0] = changed[0] + 1 if changed.dtype != bool else ~changed[0]
        assert dataclasses.replace(graph, **{field: changed}).digest() != graph.digest()
    ids = np.arange(graph.nodes) * 10
    numbered = dataclasses.replace(graph, node_ids=ids)
    assert numbered.digest() != graph.digest()
    assert numbered.digest() != dataclasses.replace(graph, node_ids=ids + 1).digest()
    turned = dataclasses.replace(graph, features=graph.features.reshape(2, 4))
    assert turned.digest() != graph.digest()  # the same bytes
    # The layout in memory is no content.
    assert small(features=np.asfortranarray(graph.features)).digest() == graph.digest()
