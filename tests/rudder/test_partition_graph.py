"""What lies in a partition's files, and how its training nodes are dealt and ordered."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rudder import partition_graph
from rudder.dataset import Graph
from rudder.errors import PartitionError, ScenarioError
from rudder.home import Home
from rudder.partition import Partition, ensure_partition
from rudder.partition_graph import communities, in_edges, part_edges, train_nodes
from rudder.registries import DATASETS
from rudder.scenario import Scenario
from rudder.seeding import epoch_order, minibatches, seed_groups, split_evenly

GRAPH, PARTS = "sbm:nodes=900,classes=3", 3


@pytest.fixture(scope="module")
def graph() -> Graph:
    built: Graph = DATASETS.build(GRAPH)
    return built


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Partition:
    home = Home.resolve(tmp_path_factory.mktemp("home"))
    return ensure_partition(GRAPH, PARTS, "random", 0, home.partitions, lambda *_: None)


@pytest.fixture(scope="module")
def new_ids(partition: Partition) -> np.ndarray:  # type: ignore[type-arg]
    """Global id by original id: nodes are numbered part by part, in order of original id."""
    assignment = np.load(partition.folder / "assignment.npy")
    ids = np.empty(assignment.size, np.int64)
    ids[np.argsort(assignment, kind="stable")] = np.arange(assignment.size)
    return ids


def test_edges_and_training_nodes_are_those_of_the_graph(
    graph: Graph,
    partition: Partition,
    new_ids: np.ndarray,  # type: ignore[type-arg]
) -> None:
    edges = in_edges(partition)
    counts = np.diff(edges.starts)
    found = np.stack([edges.sources, np.repeat(np.arange(counts.size), counts)])
    wanted = np.stack([new_ids[graph.src], new_ids[graph.dst]])
    assert sorted(found.T.tolist()) == sorted(wanted.T.tolist())
    assert train_nodes(partition).tolist() == sorted(new_ids[np.flatnonzero(graph.train)].tolist())


def test_communities_are_dense_stay_the_same_and_are_found_by_every_process(
    partition: Partition,
) -> None:
    kept = partition.folder / "part1" / "communities-4.npy"
    kept.unlink(missing_ok=True)
    found = communities(partition, 1, 4)
    assert found.shape == (partition.part_nodes[1],)
    assert set(found.tolist()) == {0, 1, 2, 3}
    assert np.array_equal(np.load(kept), found)
    src, dst = part_edges(partition, 1)
    first = partition.part_nodes[0]
    inside = (src >= first) & (src < first + found.size)
    same = found[src[inside] - first] == found[dst[inside] - first]
    assert same.mean() > 0.3  # a quarter at random
    kept.unlink()
    assert np.array_equal(communities(partition, 1, 4), found)
    np.save(kept, np.flip(found))  # as if another process had been faster
    assert np.array_equal(communities(partition, 1, 4), np.flip(found))
    kept.unlink()


def test_communities_are_the_same_wherever_they_are_found(tmp_path: Path) -> None:
    """METIS' k-way way found up to five different sixths of such a graph in eight calls."""
    home = Home.resolve(tmp_path)
    graph = "rmat:nodes=4000,edges=60000"
    one = ensure_partition(graph, 1, "random", 0, home.partitions, lambda *_: None)
    found = communities(one, 0, 6)
    for _ in range(7):
        (one.folder / "part0" / "communities-6.npy").unlink()
        assert np.array_equal(communities(one, 0, 6), found)


@pytest.mark.parametrize("how", ["cut", "empty", "of another part"])
def test_damaged_communities_are_named(partition: Partition, how: str) -> None:
    kept = partition.folder / "part2" / "communities-3.npy"
    communities(partition, 2, 3)
    if how == "cut":
        kept.write_bytes(kept.read_bytes()[:-40])
    elif how == "empty":
        kept.write_bytes(b"")
    else:
        np.save(kept, np.zeros(7, np.int32))
    with pytest.raises(PartitionError, match=r"part2/communities-3\.npy .*; delete that file"):
        communities(partition, 2, 3)
    kept.unlink()


def test_a_folder_that_takes_no_communities_is_named(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = sorted((partition.folder / "part0").iterdir())
    monkeypatch.setattr(partition_graph.os, "link", full)
    with pytest.raises(PartitionError, match=r"communities-2\.npy cannot be written: .*No space"):
        communities(partition, 0, 2)
    assert sorted((partition.folder / "part0").iterdir()) == before


def test_more_communities_than_nodes_are_refused(partition: Partition) -> None:
    with pytest.raises(ScenarioError, match="phases = 4000"):
        communities(partition, 0, 4000)


def test_a_damaged_file_is_named(partition: Partition, tmp_path: Path) -> None:
    (tmp_path / "part0").mkdir()
    broken = Partition(**{**partition.__dict__, "folder": tmp_path})
    with pytest.raises(PartitionError, match=r"part0/graph.dgl cannot be read"):
        part_edges(broken, 0)
    with pytest.raises(PartitionError, match=r"part0/node_feat.dgl cannot be read"):
        train_nodes(broken)


@given(
    nodes=st.integers(4, 80),
    parts=st.integers(1, 4),
    trainers=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_training_nodes_are_dealt_as_distdgl_deals_them(
    nodes: int, parts: int, trainers: int, seed: int
) -> None:
    import torch
    from dgl.distributed import dist_graph, role

    mask = np.random.default_rng(seed).random(nodes) < 0.6
    ranks = split_evenly(np.flatnonzero(mask), parts, trainers)
    for rank, mine in enumerate(ranks):
        book = SimpleNamespace(partid=rank // trainers, num_partitions=lambda: parts)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(role, "get_num_trainers", lambda: parts * trainers)
            part = dist_graph._split_even_to_part(book, torch.from_numpy(mask))
            wanted = dist_graph._split_random_within_part(book, rank, part)
        assert mine.tolist() == wanted.tolist()


def test_groups_by_degree_descend_in_equal_bands(partition: Partition) -> None:
    seeds = train_nodes(partition)[:90]
    scenario = Scenario.make(seed_order="degree", phases=4)
    groups = seed_groups(scenario, partition, 0, seeds)
    assert groups is not None
    assert np.ptp(np.bincount(groups)) <= 1
    degree = partition.degree()[seeds]
    for band in range(3):
        assert degree[groups == band].min() >= degree[groups == band + 1].max()


def test_groups_by_community_put_seeds_of_other_parts_last(partition: Partition) -> None:
    seeds = train_nodes(partition)
    scenario = Scenario.make(seed_order="communities", phases=5)
    groups = seed_groups(scenario, partition, 0, seeds)
    assert groups is not None
    own = seeds < partition.part_nodes[0]
    assert np.array_equal(groups[own], communities(partition, 0, 5)[seeds[own]])
    assert set(groups[~own].tolist()) == {4}
    assert seed_groups(Scenario.make(), partition, 0, seeds) is None


@given(
    groups=st.none() | st.lists(st.integers(0, 3), min_size=12, max_size=12),
    epoch=st.integers(0, 4),
)
def test_an_epoch_takes_every_seed_once_group_by_group(
    groups: list[int] | None, epoch: int
) -> None:
    given_groups = None if groups is None else np.array(groups, np.int32)
    order = epoch_order(given_groups, 12, seed=3, rank=1, epoch=epoch)
    assert sorted(order.tolist()) == list(range(12))
    if groups is not None:
        assert [groups[k] for k in order] == sorted(groups)
    again = epoch_order(given_groups, 12, seed=3, rank=1, epoch=epoch)
    assert order.tolist() == again.tolist()


def test_epochs_and_ranks_are_shuffled_apart() -> None:
    orders = {
        tuple(epoch_order(None, 50, seed, rank, epoch).tolist())
        for seed in (0, 1) for rank in (0, 1) for epoch in (0, 1)
    }  # fmt: skip
    assert len(orders) == 8


def test_minibatches_follow_the_batch_size() -> None:
    scenario = Scenario.make(epochs=4, batch_size=10, batch_size_at={1: 50, 3: 7})
    assert minibatches(scenario, 101) == (11, 3, 3, 15)
