"""Partitions against brute force and DGL's own reader."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rudder_datasets import partition as partition_module
from rudder_datasets import partition_write
from rudder_datasets.memory import available_memory
from rudder_datasets.partition import MetisPartitioner, RandomPartitioner
from rudder_datasets.partition_assign import metis_assignment, random_assignment

from rudder.dataset import Graph
from rudder.errors import PartitionError, ScenarioError
from rudder.partition import Partition
from rudder.partition_graph import communities
from rudder.registries import DATASETS, PARTITIONERS

from .toy import EDGES, NODES, WIDTH, loaded, make_graph, original_ids, silent


@pytest.fixture(scope="module", params=["metis", "random"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    graph = make_graph()
    cache = tmp_path_factory.mktemp("cache")
    partitioner = PARTITIONERS.build(request.param)
    return graph, partitioner.partition(graph, "toy:size=1", 4, 0, cache, silent)


def test_every_edge_lies_in_exactly_one_part(made: tuple[Graph, Partition]) -> None:
    graph, partition = made
    original = original_ids(partition)
    found = []
    for part in range(partition.parts):
        local, _ = loaded(partition, part)
        src, dst = (ends.numpy() for ends in local.edges())
        ids = local.ndata["_ID"].numpy()
        inner = local.edata["inner_edge"].numpy() == 1
        found.append(np.stack([original[ids[src]], original[ids[dst]]], axis=1)[inner])
        assert inner.sum() == partition.part_edges[part]
    want = np.stack([graph.src, graph.dst], axis=1)
    have = np.concatenate(found)
    assert np.array_equal(have[np.lexsort(have.T)], want[np.lexsort(want.T)])


def test_dgl_verifies_ids_of_nodes_and_edges(
    made: tuple[Graph, Partition], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DGL_DIST_DEBUG", "1")  # load_partition then checks the partition book
    _, partition = made
    nodes, edges = [], []
    for part in range(partition.parts):
        local, _ = loaded(partition, part)
        nodes.append(local.ndata["_ID"].numpy()[local.ndata["inner_node"].numpy() == 1])
        edges.append(local.edata["_ID"].numpy()[local.edata["inner_edge"].numpy() == 1])
    assert np.array_equal(np.concatenate(nodes), np.arange(NODES))
    assert np.array_equal(np.concatenate(edges), np.arange(EDGES))


def test_parts_equal_those_that_dgl_makes_of_the_same_assignment(
    made: tuple[Graph, Partition],
) -> None:
    import dgl
    import torch

    graph, partition = made
    assignment = np.load(partition.folder / "assignment.npy")
    whole = dgl.graph(
        (torch.from_numpy(graph.src), torch.from_numpy(graph.dst)), num_nodes=graph.nodes
    )
    parts, _, _ = dgl.partition_graph_with_halo(
        whole, torch.from_numpy(assignment.astype(np.int64)), 1, reshuffle=True
    )
    original = original_ids(partition)
    for part, theirs in parts.items():
        ours, _ = loaded(partition, part)
        ids = original[ours.ndata["_ID"].numpy()]
        assert _rows(ours, ids) == _rows(theirs, theirs.ndata["orig_id"].numpy())


def _rows(part: Any, original: np.ndarray) -> tuple[list[Any], list[Any]]:
    """Nodes and edges of a part by original id, with what DGL notes about each."""
    nodes = zip(original, part.ndata["inner_node"].tolist(), part.ndata["part_id"].tolist(),
                strict=True)  # fmt: skip
    src, dst = (ends.numpy() for ends in part.edges())
    edges = zip(original[src], original[dst], part.edata["inner_edge"].tolist(), strict=True)
    return sorted(nodes), sorted(edges)


def test_halo_degree_and_facts_equal_brute_force(made: tuple[Graph, Partition]) -> None:
    graph, partition = made
    assignment = np.load(partition.folder / "assignment.npy")
    original = original_ids(partition)
    new = np.empty(NODES, np.int64)
    new[original] = np.arange(NODES)
    pairs = list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    for part in range(partition.parts):
        halo = {int(new[s]) for s, d in pairs if assignment[d] == part and assignment[s] != part}
        assert partition.halo(part).tolist() == sorted(halo)
        assert partition.halo(part).dtype == np.int64
        assert partition.halo_nodes[part] == len(halo)
        owned = assignment == part
        assert partition.part_nodes[part] == owned.sum()
        assert partition.part_train[part] == (owned & graph.train).sum()
        assert partition.part_edges[part] == sum(owned[d] for _, d in pairs)
    degree = partition.degree()
    assert degree.dtype == np.int32
    for node in range(NODES):
        assert degree[node] == sum(s == original[node] for s, _ in pairs)
    assert partition.edge_cut == sum(assignment[s] != assignment[d] for s, d in pairs) / EDGES
    assert partition.balance == max(partition.part_nodes) / (NODES / 4)
    assert partition.halo_share == sum(partition.halo_nodes) / NODES
    assert 0 < partition.beyond_halo < 1
    assert partition.graph == "toy:size=1"
    assert partition.graph_digest == graph.digest()
    assert partition.graph_name == "toy_graph"


@pytest.mark.parametrize("multilabel", [False, True])
def test_node_data_survive_relabelling(tmp_path: Path, multilabel: bool) -> None:
    graph = make_graph(multilabel=multilabel)
    partition = RandomPartitioner().partition(graph, "toy", 3, 0, tmp_path, silent)
    seen = 0
    for part in range(3):
        _, data = loaded(partition, part)
        ids = data["orig_id"]
        seen += ids.size
        for name, want in {
            "feat": graph.features,
            "label": graph.labels,
            "train_mask": graph.train.astype(np.uint8),
            "val_mask": graph.val.astype(np.uint8),
            "test_mask": graph.test.astype(np.uint8),
        }.items():
            assert data[name].dtype == want.dtype
            assert np.array_equal(data[name], want[ids])
    assert seen == NODES


def test_training_nodes_are_balanced(made: tuple[Graph, Partition]) -> None:
    _, partition = made
    mean = sum(partition.part_train) / 4
    assert max(partition.part_train) <= 1.2 * mean  # METIS allows some slack on a tiny graph
    assert sum(partition.part_train) == 240  # three of five nodes


def test_the_folder_can_be_moved_and_read_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RandomPartitioner().partition(make_graph(), "toy", 2, 0, tmp_path / "a", silent)
    moved = tmp_path / "elsewhere"
    made.folder.rename(moved)
    monkeypatch.chdir("/")
    assert loaded(Partition.load(moved), 1)[1]["feat"].shape == (made.part_nodes[1], WIDTH)


def grouped() -> tuple[Graph, np.ndarray]:
    """Four groups of nodes, one edge of twenty between any two nodes; and the group of each."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(4), 100)[rng.permutation(400)]
    src = rng.integers(0, 400, 8000)
    same = np.array([rng.choice(np.flatnonzero(group == group[node])) for node in src[:7600]])
    ends = np.concatenate([same, rng.integers(0, 400, 400)])
    return dataclasses.replace(make_graph(nodes=400, edges=0), src=src, dst=ends), group


@pytest.mark.parametrize("seed", [0, 5])
def test_metis_cuts_few_edges(tmp_path: Path, seed: int) -> None:
    graph, _ = grouped()
    cut = MetisPartitioner().partition(graph, "toy", 4, seed, tmp_path, silent).edge_cut
    assert cut < 0.2  # at random 0.75


def test_metis_spreads_training_nodes_that_lie_together(tmp_path: Path) -> None:
    graph, group = grouped()
    none = np.zeros(graph.nodes, np.bool_)
    graph = dataclasses.replace(graph, train=group == 0, val=none, test=none)
    made = MetisPartitioner().partition(graph, "toy", 4, 0, tmp_path, silent)
    assert max(made.part_train) < 40  # of 100, which fewest cut edges would leave in one part


def test_metis_bears_edges_that_repeat(tmp_path: Path) -> None:
    """DGL makes a graph symmetric for METIS, and such graphs overran its memory."""
    rng = np.random.default_rng(0)
    weight = 1 / np.arange(1, 2001) ** 0.8
    src, dst = rng.choice(2000, (2, 40_000), p=weight / weight.sum())
    assert len(np.unique(src * 2000 + dst)) < 35_000
    graph = dataclasses.replace(make_graph(nodes=2000, edges=0), src=src, dst=dst)
    made = MetisPartitioner().partition(graph, "toy", 4, 0, tmp_path, silent)
    assert sum(made.part_edges) == 40_000
    assert sorted(np.unique(communities(made, 1, 3))) == [0, 1, 2]


def test_metis_does_not_depend_on_what_memory_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads some that it has not written: what glibc fills that with decided between parts."""
    graph = DATASETS.build("rmat:nodes=4000,edges=60000")
    found = []
    for filling in ("85", "170"):
        monkeypatch.setenv("MALLOC_PERTURB_", filling)
        found.append(metis_assignment(graph, 4, 0, tmp_path))
    assert np.array_equal(*found)


def test_seed_matters(tmp_path: Path) -> None:
    graph = make_graph()
    for partitioner in (RandomPartitioner(), MetisPartitioner()):
        found = [
            np.load(partitioner.partition(graph, "t", 4, s, tmp_path, silent).folder
                    / "assignment.npy")
            for s in (0, 1)
        ]  # fmt: skip
        assert not np.array_equal(*found)
    assert np.array_equal(random_assignment(graph, 4, 7), random_assignment(graph, 4, 7))


def test_what_dgl_cannot_write_is_told(tmp_path: Path) -> None:
    from dgl.data.utils import save_tensors

    with pytest.raises(OSError, match=r"nowhere/x\.dgl cannot be written"):
        partition_write._save(save_tensors, tmp_path / "nowhere" / "x.dgl", {})


def test_a_long_name_is_cut(tmp_path: Path) -> None:
    graph = dataclasses.replace(make_graph(nodes=40, edges=80), name="n" * 250)
    made = RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path, silent)
    assert made.graph_name == "n" * 64
    assert loaded(made, 1)[0].num_nodes() >= 20


def test_beyond_the_halo_is_what_lies_two_hops_away() -> None:
    # Node 0 trains in part 0; 1 is its halo; 2 and 3 lie behind 1; 4 is only reached from 0.
    graph = dataclasses.replace(
        make_graph(nodes=5, edges=0),
        src=np.array([1, 2, 3, 0]),
        dst=np.array([0, 1, 1, 4]),
        train=np.array([True, False, False, False, False]),
    )
    assignment = np.array([0, 1, 1, 1, 1], np.int32)
    assert partition_module._beyond_halo(graph, assignment, 2, 0) == pytest.approx(2 / 3)


def test_more_parts_than_nodes_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="parts = 12, but graph 'toy graph' has 11 nodes"):
        MetisPartitioner().partition(make_graph(nodes=11), "toy", 12, 0, tmp_path, silent)
    with pytest.raises(ScenarioError, match="parts = 0"):
        MetisPartitioner().partition(make_graph(), "toy", 0, 0, tmp_path, silent)
    assert not list(tmp_path.iterdir())


def test_too_little_memory_is_refused_with_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_module, "available_memory", lambda: 100_000_000)
    with pytest.raises(PartitionError, match=r"needs about 0\.60 GB .* 0\.10 GB are available"):
        MetisPartitioner().partition(make_graph(), "toy", 4, 0, tmp_path, silent)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_memory_is_refused_to_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph(nodes=40, edges=80)
    wide = dataclasses.replace(graph, features=np.ones((40, 100_000), np.float32))
    partitioner = RandomPartitioner()
    needed = partitioner.peak_memory(wide, 2)
    # A part's rows are held twice while they are written.
    more = needed - partitioner.peak_memory(graph, 2)
    assert more == wide.features.nbytes - graph.features.nbytes
    monkeypatch.setattr(partition_module, "available_memory", lambda: needed - 1)
    with pytest.raises(PartitionError, match="are available"):
        partitioner.partition(wide, "toy", 2, 0, tmp_path, silent)
    monkeypatch.setattr(partition_module, "available_memory", lambda: needed)
    assert partitioner.partition(wide, "toy", 2, 0, tmp_path, silent).feature_width == 100_000


def test_a_part_that_metis_leaves_empty_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_in_one(*_: object, cwd: Path, **__: object) -> subprocess.CompletedProcess[str]:
        np.save(cwd / "assignment.npy", np.zeros(40, np.int32))
        return subprocess.CompletedProcess([], 0, "")

    monkeypatch.setattr(subprocess, "run", all_in_one)
    with pytest.raises(PartitionError, match=r"left 2 of 3 parts .* empty; use fewer parts"):
        MetisPartitioner().partition(make_graph(nodes=40), "toy", 3, 0, tmp_path, silent)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_available_memory_heeds_both_kinds_of_cgroup(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    4000 kB\n")
    assert available_memory(meminfo, tmp_path) == 4_096_000
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 100000\n")
    assert available_memory(meminfo, tmp_path) == 700_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(meminfo, tmp_path) == 4_096_000
    old = tmp_path / "memory"
    old.mkdir()
    (old / "memory.limit_in_bytes").write_text("500000\n")
    (old / "memory.usage_in_bytes").write_text("600000\n")
    (old / "memory.stat").write_text("total_inactive_file 50000\n")
    assert available_memory(meminfo, tmp_path) == 0
    assert available_memory() > 0


def test_isolated_nodes_and_graphs_without_edges(tmp_path: Path) -> None:
    graph = make_graph(nodes=40, edges=0)
    for partitioner in (RandomPartitioner(), MetisPartitioner()):
        partition = partitioner.partition(graph, "toy", 2, 0, tmp_path, silent)
        assert sum(partition.part_nodes) == 40
        assert partition.halo_nodes == (0, 0)
        assert partition.edge_cut == partition.beyond_halo == 0
        assert loaded(partition, 1)[0].num_edges() == 0


def test_one_part_owns_everything(tmp_path: Path) -> None:
    partition = MetisPartitioner().partition(make_graph(), "toy", 1, 0, tmp_path, silent)
    assert partition.part_nodes == (NODES,)
    assert partition.halo_nodes == (0,)
    assert loaded(partition, 0)[0].num_edges() == EDGES
