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
