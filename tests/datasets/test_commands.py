"""``rudder datasets``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ISSUED = {
    "custom", "debian", "flickr", "friendster", "ogbn-arxiv", "ogbn-papers100M", "ogbn-products",
    "orkut", "reddit", "rmat", "sbm", "yelp",
}  # fmt: skip


def test_the_list_holds_every_graph_and_its_facts(cli: Callable[..., Any]) -> None:
    ran = cli("datasets", "--json")
    assert ran.code == 0, ran.err
    rows = {row["name"]: row for row in json.loads(ran.out)}
    assert set(rows) >= ISSUED
    assert rows["ogbn-products"]["classes"] == 47
    assert rows["yelp"]["task"] == "multi-label"
    assert rows["friendster"]["needs_network"] is True
    assert rows["rmat"]["needs_network"] is False
    assert all(row["summary"] and row["licence"] for row in rows.values())
    table = cli("datasets")
    assert table.code == 0
    assert all(name in table.out for name in ISSUED)


def test_facts_of_a_generated_graph_are_measured(cli: Callable[..., Any]) -> None:
    ran = cli("datasets", "sbm:nodes=300,classes=3", "--json")
    found = json.loads(ran.out)
    assert (found["built"], found["nodes"], found["classes"]) == (True, 300, 3)
    assert found["cleaning"]["reverse_edges_added"] * 2 == found["edges"]
    assert found["train"] + found["val"] + found["test"] == 300


def test_facts_of_a_published_graph_without_its_files(cli: Callable[..., Any]) -> None:
    found = json.loads(cli("datasets", "reddit", "--json").out)
    assert (found["built"], found["nodes"]) == (False, 232_965)
    assert "--from" in found["to_build"]
    assert json.loads(cli("datasets", "custom", "--json").out)["built"] is False


def test_from_reads_raw_files(cli: Callable[..., Any], shared_data: Path) -> None:
    folder = shared_data / "raw" / "graphsaint_style_amazon_multilabel"
    ran = cli("datasets", "yelp", "--from", folder, "--json")
    found = json.loads(ran.out)
    assert (found["nodes"], found["edges"], found["task"]) == (6_926, 35_786, "multi-label")
    assert found["spec"] == f"yelp:from={folder}"
    assert "another graph in the same layout" in ran.err
    assert "WARNING" not in ran.out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["ogbn-arxv"], 2, "did you mean 'ogbn-arxiv'"),
        (["rmat", "--from", "."], 2, "no parameter 'from'"),
        (["flickr", "--from", "nowhere"], 2, "no such folder"),
        (["flickr", "--from", "."], 1, "adj_full.npz"),
        (["--yes"], 2, "NAME"),
        (["custom:edges=nowhere.csv"], 2, "no such file"),
        (["rmat:nodes=0"], 2, "nodes=0"),
    ],
)
def test_wrong_use(cli: Callable[..., Any], arguments: list[str], code: int, says: str) -> None:
    ran = cli("datasets", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert says in ran.err
    assert "Traceback" not in ran.err
