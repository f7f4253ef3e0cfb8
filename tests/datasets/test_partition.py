"""Partitions against brute force, DGL's own reader, and a cache that is used by several at once."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rudder_datasets import partition as partition_module
from rudder_datasets import partition_write
from rudder_datasets.memory import available_memory
from rudder_datasets.partition import MetisPartitioner, RandomPartitioner
from rudder_datasets.partition_assign import random_assignment

from rudder.dataset import Graph
from rudder.errors import PartitionError, ScenarioError
from rudder.partition import Partition
from rudder.registries import PARTITIONERS

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


def test_second_call_is_a_cache_hit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph()
    first = RandomPartitioner().partition(graph, "toy", 4, 0, tmp_path, silent)
    monkeypatch.setattr(RandomPartitioner, "assign", None)  # would fail if it were called
    assert RandomPartitioner().partition(graph, "toy", 4, 0, tmp_path, silent) == first


@pytest.mark.parametrize(
    "damage",
    [
        "rudder.json",
        "files.json",
        "assignment.npy",
        "degree.npy",
        "part1/halo.npy",
        "part0/graph.dgl",
        "part1/node_feat.dgl",
    ],
)
@pytest.mark.parametrize("how", ["missing", "cut"])
def test_a_damaged_partition_is_made_again(
    tmp_path: Path, damage: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    graph = make_graph()
    first = RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path, silent)
    file = first.folder / damage
    size = file.stat().st_size
    if how == "cut":
        os.truncate(file, size // 2)
    else:
        file.unlink()
    with caplog.at_level(logging.WARNING):
        again = RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path, silent)
    assert "partitioning again" in caplog.text
    assert again == first
    assert file.stat().st_size == size


@pytest.mark.parametrize("name", ["rudder.json", "files.json"])
@pytest.mark.parametrize("text", ["[]", '"x"', "5", "{}", "null"])
def test_a_partition_whose_facts_are_none_is_made_again(
    tmp_path: Path, name: str, text: str
) -> None:
    graph = make_graph(nodes=40, edges=80)
    first = RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path, silent)
    if (name, text) == ("files.json", "{}"):
        text = '{"part0": {}}'  # no file of that size
    (first.folder / name).write_text(text)
    again = RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path, silent)
    assert again == first
    assert json.loads((first.folder / name).read_text()) != json.loads(text)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema_version": 99}, "schema version 99.*partition again"),
        ({"part_nodes": 5}, "part_nodes"),
        ({"edge_cut": None}, "edge_cut"),
        ({"seed": "first"}, "seed"),
        ({"more": 1}, "holds more"),
    ],
)
def test_facts_of_another_kind_are_refused(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    made = RandomPartitioner().partition(
        make_graph(nodes=40, edges=80), "toy", 2, 0, tmp_path, silent
    )
    facts = json.loads((made.folder / "rudder.json").read_text())
    (made.folder / "rudder.json").write_text(json.dumps(facts))
    assert Partition.load(made.folder) == made
    (made.folder / "rudder.json").write_text(json.dumps({**facts, **change}))
    with pytest.raises(PartitionError, match=says):
        Partition.load(made.folder)


def test_a_cache_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make_graph(nodes=40, edges=80)
    (tmp_path / "file").write_text("")
    with pytest.raises(PartitionError, match=r"file/.* cannot be made: .*--home"):
        RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path / "file", silent)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(partition_module, "write_parts", full)
    with pytest.raises(PartitionError, match=r"cannot be made: .*No space left"):
        RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path / "cache", silent)
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_what_dgl_cannot_write_is_told(tmp_path: Path) -> None:
    from dgl.data.utils import save_tensors

    with pytest.raises(OSError, match=r"nowhere/x\.dgl cannot be written"):
        partition_write._save(save_tensors, tmp_path / "nowhere" / "x.dgl", {})


def test_a_long_name_is_cut(tmp_path: Path) -> None:
    graph = dataclasses.replace(make_graph(nodes=40, edges=80), name="n" * 250)
    made = RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path, silent)
    assert made.graph_name == "n" * 64
    assert loaded(made, 1)[0].num_nodes() >= 20


def test_changed_content_parts_and_method_get_partitions_of_their_own(tmp_path: Path) -> None:
    folders = {
        partitioner.partition(graph, "toy", parts, seed, tmp_path, silent).folder
        for partitioner, parts, seed in (
            (MetisPartitioner(), 1, 0),
            (RandomPartitioner(), 1, 0),
            (RandomPartitioner(), 2, 0),
            (RandomPartitioner(), 2, 1),
        )
        for graph in (make_graph(), make_graph(seed=1))
    }
    assert len(folders) == 8


def test_more_classes_are_another_partition(tmp_path: Path) -> None:
    graph = make_graph(nodes=40, edges=80)
    found = [
        RandomPartitioner().partition(
            dataclasses.replace(graph, classes=classes), "toy", 2, 0, tmp_path, silent
        )
        for classes in (CLASSES, CLASSES + 3)
    ]
    assert [each.classes for each in found] == [CLASSES, CLASSES + 3]
    assert [Partition.load(each.folder).classes for each in found] == [CLASSES, CLASSES + 3]


def test_a_partition_of_another_graph_is_refused(tmp_path: Path) -> None:
    graph = make_graph()
    made = RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path, silent)
    other = RandomPartitioner().partition(make_graph(seed=1), "toy", 2, 0, tmp_path, silent)
    facts = (other.folder / "rudder.json").read_bytes()  # somebody mixed two folders
    (made.folder / "rudder.json").write_bytes(facts)
    with pytest.raises(PartitionError, match=r"graph_digest .* delete the folder"):
        RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path, silent)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 7}, "seed 7, wanted 0"),
        ({"part_nodes": [10, 10, 20]}, "parts 3, wanted 2"),
        ({"method": "metis"}, "method 'metis', wanted 'random'"),
    ],
)
def test_a_folder_that_holds_another_partition_is_refused(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    graph = make_graph(nodes=40, edges=80)
    made = RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path, silent)
    facts = json.loads((made.folder / "rudder.json").read_text())
    (made.folder / "rudder.json").write_text(json.dumps({**facts, **change}))
    with pytest.raises(PartitionError, match=rf"another partition .*{says}; delete the folder"):
        RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path, silent)


@pytest.mark.parametrize("name", ["rudder", "files"])
def test_a_graph_named_as_one_of_our_files(tmp_path: Path, name: str) -> None:
    graph = dataclasses.replace(make_graph(nodes=40, edges=80), name=name)
    made = RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path, silent)
    assert Partition.load(made.folder) == made
    assert loaded(made, 0)[0].num_nodes() >= 20
    assert RandomPartitioner().partition(graph, "toy", 2, 0, tmp_path, silent) == made


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


def test_two_processes_at_once_get_the_same_partition(
    cli: Any, ring_plugin: Path, tmp_path: Path
) -> None:
    arguments = ("partition", "ring", "--parts", "3", "--plugin", ring_plugin, "--json")
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(cli, *arguments, timeout=240) for _ in range(2)]
        done = [run.result() for run in runs]
    assert [(run.code, run.err) for run in done] == [(0, "")] * 2
    one, two = (json.loads(run.out) for run in done)
    assert one == two
    folders = [path for path in Path(one["folder"]).parent.iterdir() if path.is_dir()]
    assert folders == [Path(one["folder"])]


def test_a_killed_process_leaves_nothing_that_counts_and_no_child(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from rudder.dataset import Graph\n"
        "from rudder_datasets import partition\n"
        "def slowly(*args):\n"
        "    Path(sys.argv[2]).touch()\n"
        "    time.sleep(60)\n"
        "partition.write_parts = slowly\n"
        "data = np.load(sys.argv[1])\n"
        "graph = Graph('toy graph', **{k: data[k] for k in data.files}, classes=4)\n"
        "partition.RandomPartitioner().partition(\n"
        "    graph, 'toy', 2, 0, Path(sys.argv[3]), lambda phase, share: None)\n"
    )
    graph = make_graph()
    names = ("src", "dst", "features", "labels", "train", "val", "test")
    np.savez(tmp_path / "graph.npz", **{name: getattr(graph, name) for name in names})
    flag, cache = tmp_path / "writing", tmp_path / "cache"
    slow = subprocess.Popen(
        [sys.executable, "-I", str(script), str(tmp_path / "graph.npz"), str(flag), str(cache)]
    )
    deadline = time.monotonic() + 60
    while not flag.exists():
        assert time.monotonic() < deadline
        assert slow.poll() is None
        time.sleep(0.05)
    slow.kill()
    slow.wait(timeout=10)
    left = [path.name for path in cache.iterdir() if path.is_dir()]
    assert len(left) == 1
    assert left[0].endswith(".part")
    made = RandomPartitioner().partition(graph, "toy", 2, 0, cache, silent)
    assert [path for path in cache.iterdir() if path.is_dir()] == [made.folder]


def test_a_failing_metis_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PartitionError, match=r"METIS .* ended with code 1: it said nothing"):
        MetisPartitioner().partition(make_graph(), "toy", 4, 0, tmp_path, silent)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_metis_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "rudder_datasets.metis", "2", "0", str(os.getppid())],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "is gone" in done.stderr


def test_a_killed_partition_takes_metis_along(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.npy")  # METIS waits here for what somebody writes
    script = (
        "import os, subprocess, sys\n"
        "command = [sys.executable, '-I', '-m', 'rudder_datasets.metis', '2', '0']\n"
        "child = subprocess.Popen([*command, str(os.getpid())], stderr=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-I", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    metis = int(parent.stdout.readline())
    writer = _writer(tmp_path / "train.npy")
    try:
        assert not _ended(metis)
        parent.kill()
        parent.wait(10)
        deadline = time.monotonic() + 10
        while not _ended(metis):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.close(writer)
        parent.stdout.close()


def _writer(fifo: Path) -> int:
    """The end to write to, once somebody reads."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _ended(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_command_prints_facts_and_json(cli: Any, ring_plugin: Path) -> None:
    def run(graph: str, *more: str) -> Any:
        return cli("partition", graph, "--plugin", ring_plugin, *more, timeout=240)

    done = run("ring:size=90", "--parts", "3", "--method", "random", "--json")
    assert (done.code, done.err) == (0, "")
    facts = json.loads(done.out)
    assert facts["graph"] == "ring:size=90"
    assert facts["part_edges"] == facts["part_nodes"]
    assert sum(facts["part_train"]) == 30
    assert Path(facts["folder"], "rudder.json").is_file()
    done = run("ring:size=90", "--parts", "3", "--method", "random")
    assert done.code == 0
    for word in ("edge cut", "beyond halo", facts["digest"], facts["folder"]):
        assert word in done.out
    done = run("ring:size=2", "--parts", "3")
    assert done.code == 2
    assert "ask for fewer parts" in done.err
    done = run("ring", "--method", "metiss")
    assert done.code == 2
    assert "did you mean 'metis'" in done.err


@pytest.mark.parametrize(
    ("options", "levels"), [((), {"WARNING"}), (("-q",), set()), (("-vv",), {"WARNING", "DEBUG"})]
)
def test_how_much_is_said(
    cli: Any, tmp_path: Path, options: tuple[str, ...], levels: set[str]
) -> None:
    (tmp_path / "g.csv").write_text("0,1\n1,2\n2,3\n3,0\n")
    done = cli("partition", "custom:edges=g.csv", "--parts", "2", *options, timeout=240)
    assert done.code == 0
    lines = [line for line in done.err.splitlines() if " rudder_datasets." in line]
    assert {line.partition(" ")[0] for line in lines} == levels


@pytest.fixture
def ring_plugin(tmp_path: Path) -> Path:
    """A plug-in file with a dataset ``ring:size=60``."""
    plugin = tmp_path / "ring_plugin.py"
    plugin.write_text(
        "import numpy as np\n"
        "from rudder.dataset import Graph\n"
        "from rudder.registries import DATASETS\n"
        "def ring(size=60):\n"
        "    ids = np.arange(size)\n"
        "    mask = ids % 3\n"
        "    return Graph('ring', ids, (ids + 1) % size, np.ones((size, 2), np.float32),\n"
        "                 ids % 2, mask == 0, mask == 1, mask == 2, 2)\n"
        "DATASETS.register('ring', ring)\n"
    )
    return plugin
