"""The shipped suites: they can be run, and there is something to decide in each scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from rudder.policies.base import Policy
from rudder.registries import DATASETS, PARTITIONERS, POLICIES, SUITES
from rudder.suite import Suite, find_suite

FOLDER = Path(__file__).resolve().parents[2] / "eval" / "suites"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_a_shipped_suite_is_registered_and_can_be_run(path: Path) -> None:
    suite = find_suite(path.stem)
    assert suite == Suite.read(path)
    assert suite.summary
    assert SUITES.entry(path.stem).summary == suite.summary
    for item in suite:
        DATASETS.check(item.scenario.graph)
        PARTITIONERS.check(item.scenario.partition_method)
        policy: Policy = POLICIES.build(item.scenario.policy)
        assert not policy.tags.self_deciding, item.name
        assert item.scenario.buffer, item.name


def test_classifiers_learn_in_distribution_from_uniform_and_drifting_accesses() -> None:
    suite = find_suite("train")
    assert set(suite.splits) == {"id_train", "id_val"}
    learned = [item.scenario for item in suite if item.split == "id_train"]
    assert {s.graph for s in learned} == {"debian"}
    assert {s.seed_order for s in learned} == {"uniform", "communities", "degree"}
    assert any(s.fan_out_at for s in learned)
    assert any(s.batch_size_at for s in learned)
    assert {s.policy.partition(":")[0] for s in learned} == {
        "score", "score-published", "massivegnn",
    }  # fmt: skip
    assert len({s.buffer for s in learned}) >= 3


def test_quick_shifts_along_seven_axes_and_needs_no_network() -> None:
    suite = find_suite("quick")
    assert {"id_train", "id_val"} < set(suite.splits)
    assert len({item.axis for item in suite if item.axis}) == 7
    for item in suite:
        assert not DATASETS.entry(item.scenario.graph.partition(":")[0]).fields["needs_network"]
    learned = {i.scenario.digest() for i in find_suite("train") if i.split == "id_train"}
    for item in suite:
        accesses = item.scenario.change(rate=0.0)  # classifiers learned on unshaped links
        assert (accesses.digest() in learned) == (item.split == "id_train"), item.name


@pytest.mark.parametrize("name", ["quick", "paper", "full"])
def test_a_shift_changes_what_its_axis_says(name: str) -> None:
    """Along an axis its own field differs from every scenario in distribution."""
    suite = find_suite(name)
    inside = [item.scenario for item in suite if not item.axis]
    for item in suite:
        if item.axis in ("", "drift"):
            continue
        seen = {str(getattr(scenario, item.axis)) for scenario in inside}
        assert str(getattr(item.scenario, item.axis)) not in seen, item.name


def test_paper_holds_its_graphs_and_buffers() -> None:
    suite = find_suite("paper")
    graphs = {item.scenario.graph for item in suite}
    assert graphs >= {"ogbn-products", "reddit", "yelp", "orkut", "friendster", "ogbn-papers100M"}
    assert {item.scenario.buffer for item in suite} >= {0.05, 0.1, 0.15, 0.2, 0.25}
