"""The synthetic graphs: what was asked for, repeatable, and learnable."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rudder_datasets.features import neighbour_mean
from rudder_datasets.generators import rmat, sbm

from rudder.dataset import Graph
from rudder.errors import DatasetError, SpecError, UsageError
from rudder.registries import DATASETS


def accuracy(graph: Graph, *, neighbours: bool) -> float:
    """Test accuracy of ridge regression on the features, with the neighbours' mean or without."""
    x = np.concatenate([graph.features, np.ones((graph.nodes, 1), np.float32)], axis=1)
    if neighbours:
        x = np.concatenate([x, neighbour_mean(graph.src, graph.dst, graph.features)], axis=1)
    x = x.astype(np.float64)
    train, one_hot = graph.train, np.eye(graph.classes)[graph.labels]
    weights = np.linalg.solve(
        x[train].T @ x[train] + 0.01 * np.eye(x.shape[1]), x[train].T @ one_hot[train]
    )
    return float(((x[graph.test] @ weights).argmax(axis=1) == graph.labels[graph.test]).mean())


@pytest.mark.parametrize("name", ["rmat", "sbm"])
def test_labels_are_learnable_and_neighbours_help(name: str) -> None:
    graph = DATASETS.build(f"{name}:nodes=5000,classes=5")
    alone, together = accuracy(graph, neighbours=False), accuracy(graph, neighbours=True)
    assert together > alone + 0.1
    assert together > 0.6  # chance is about 0.2


@pytest.mark.parametrize("make", [rmat, sbm])
def test_equal_parameters_give_equal_graphs(make: object) -> None:
    assert callable(make)
    assert make(nodes=500, seed=3).digest() == make(nodes=500, seed=3).digest()
    assert make(nodes=500, seed=3).digest() != make(nodes=500, seed=4).digest()


@settings(max_examples=30, deadline=None)
@given(
    nodes=st.integers(2, 300),
    edges=st.integers(0, 2000),
    width=st.integers(1, 9),
    classes=st.integers(2, 6),
    seed=st.integers(0, 99),
)
def test_rmat_is_a_clean_undirected_graph_of_the_size_asked_for(
    nodes: int, edges: int, width: int, classes: int, seed: int
) -> None:
    graph = rmat(nodes=nodes, edges=edges, features=width, classes=classes, seed=seed)
    assert graph.features.shape == (nodes, width)
    assert graph.classes == classes
    pairs = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    assert len(pairs) == graph.edges
    assert all(u != v and (v, u) in pairs for u, v in pairs)
    cleaning = graph.cleaning
    assert cleaning["edges_read"] == edges
    assert graph.edges == (
        edges
        - cleaning["self_loops_removed"]
        - cleaning["duplicates_removed"]
        + cleaning["reverse_edges_added"]
    )
    assert cleaning["isolated_nodes"] == nodes - len({u for u, _ in pairs})


def test_rmat_degrees_are_skewed_and_uniform_quadrants_are_not() -> None:
    skewed = np.bincount(rmat(nodes=4096, degree=16).dst)
    even = np.bincount(rmat(nodes=4096, degree=16, a=0.25, b=0.25, c=0.25).dst)
    assert skewed.max() > 10 * skewed.mean()
    assert even.max() < 4 * even.mean()


def test_rmat_numbers_tell_nothing_of_the_degree() -> None:
    degree = np.bincount(rmat(nodes=4096, degree=16).dst)
    assert degree[:64].mean() < 3 * degree.mean()  # unshuffled, they would have the most


def test_sbm_degree_and_mixing_are_met() -> None:
    graph = sbm(nodes=6000, classes=4, degree=20, mixing=0.3)
    assert graph.edges / graph.nodes == pytest.approx(20, rel=0.02)
    assert np.mean(graph.labels[graph.src] != graph.labels[graph.dst]) == pytest.approx(
        0.3, abs=0.01
    )
    assert graph.cleaning["duplicates_removed"] == graph.cleaning["self_loops_removed"] == 0


def test_sbm_probabilities_at_their_ends_give_exact_graphs() -> None:
    cliques = sbm(nodes=30, classes=3, p_in=1.0, p_out=0.0)
    assert cliques.edges == 3 * 10 * 9
    assert (cliques.labels[cliques.src] == cliques.labels[cliques.dst]).all()
    between = sbm(nodes=31, classes=3, p_in=0.0, p_out=1.0)  # blocks of 10, 10 and 11 nodes
    assert between.edges == 31 * 30 - (10 * 9 + 10 * 9 + 11 * 10)
    assert (between.labels[between.src] != between.labels[between.dst]).all()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("rmat:nodes=1", "nodes=1"),
        ("rmat:edges=5,degree=3", "not both"),
        ("rmat:a=0.9,b=0.2", "a=0.9"),
        ("rmat:a=1,b=0,c=0", "a=1"),
        # All pairs would lie beyond the nodes: drawing again would never end.
        ("rmat:nodes=10,a=0,b=0,c=0", "a=0"),
        ("rmat:nodes=10,a=0,b=0.5,c=0", "a=0"),
        ("rmat:nodes=10,a=0,b=1,c=0", "a=0"),
        ("rmat:nodes=10,a=0,b=0,c=1", "a=0"),
        ("rmat:degree=1e308", "degree=1e"),
        ("sbm:degree=-1", "degree=-1"),
        ("rmat:train=0.9,val=0.2", "train=0.9"),
        ("sbm:nodes=3,classes=9", "classes=9"),
        ("sbm:p_in=0.5", "together"),
        ("sbm:nodes=100,degree=99,mixing=0", "more edges than"),
        ("sbm:mixing=2", "mixing=2"),
        ("rmat:nodes=1.5", "whole number, found 1.5"),
        ("sbm:seed=-1", "seed=-1"),
        ("sbm:p_in=2,p_out=0", "p_in=2"),
        ("rmat:edges=-1", "edges=-1"),
    ],
)
def test_values_out_of_range_are_wrong_use(spec: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        DATASETS.build(spec)


@pytest.mark.parametrize(
    "spec", ["rmat:edges=1000000000000", "rmat:nodes=1000000000000", "sbm:nodes=1000000000000"]
)
def test_a_graph_that_cannot_be_held_is_refused_with_numbers(spec: str) -> None:
    with pytest.raises(DatasetError, match=r"needs at least .* GB of memory and .* GB are"):
        DATASETS.build(spec)


def test_an_unknown_parameter_is_named_with_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean 'nodes'"):
        DATASETS.build("rmat:node=5")
