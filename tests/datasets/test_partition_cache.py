"""Partitions that were made before: found, made again where damaged, refused where others'."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from rudder_datasets import partition as partition_module
from rudder_datasets.partition import MetisPartitioner, RandomPartitioner

from rudder.errors import PartitionError
from rudder.partition import Partition

from .toy import CLASSES, loaded, make_graph, silent


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
