"""Which questions of a suite a model has seen before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rudder.model import Column, ModelManifest, Support, Training
from rudder.model.leak import leaks
from rudder.observation import SCHEMA_VERSION
from rudder.registries import DATASETS
from rudder.registry import Entry
from rudder.suite import Suite

SUITE = Suite.of(
    "shifts",
    {
        "base": {"graph": "debian", "epochs": 3},
        "scenarios": {
            "plain": {},
            "wide": {"split": "ood_fan_out", "fan_out": [15, 30]},
            "other": {"split": "ood_graph", "graph": "rmat:scale=10"},
            "small": {"split": "ood_buffer", "buffer": 0.05},
        },
    },
)
DIGESTS = {item.name: item.scenario.digest() for item in SUITE}


def manifest(**training: Any) -> ModelManifest:
    facts: dict[str, Any] = {
        "suite": "train",
        "suite_digest": "0" * 16,
        "scenarios": {"mine": DIGESTS["plain"]},
        "graphs": ("debian",),
        "traces": ("t0", "t1"),
        "seeds": (0, 1),
        "collection": "c" * 64,
        "label": "counterfactual",
        "examples": {"train": 100},
    }
    return ModelManifest(
        name="mine",
        estimator={"name": "logistic", "params": {}},
        observation_schema=SCHEMA_VERSION,
        columns=(Column(name="hit_rate", unit="share"),),
        files={"weights": "0" * 64},
        support=Support.of(np.array([[0.0], [1.0]])),
        training=Training(**{**facts, **training}),
    )


def test_training_in_distribution_is_no_leak() -> None:
    assert leaks(manifest(), SUITE) == []
    assert leaks(manifest(), SUITE, seeds=[5, 6], traces=["t9"]) == []


def test_a_shift_that_was_trained_on_is_one_whatever_its_name_was() -> None:
    seen = {"mine": DIGESTS["plain"], "big": DIGESTS["wide"]}
    [line] = leaks(manifest(scenarios=seen), SUITE)
    assert line == "shifts/wide (ood_fan_out): model 'mine' was trained on it, as 'big'"


@pytest.mark.parametrize("seed", [0, 3])
def test_a_seed_makes_no_other_scenario(seed: int) -> None:
    items = [
        item
        if item.name != "small"
        else type(item)(item.name, item.split, item.scenario.change(seed=seed))
        for item in SUITE
    ]
    seeded = Suite("shifts", "", tuple(items))
    [line] = leaks(manifest(scenarios={"tight": DIGESTS["small"]}), seeded)
    assert "shifts/small (ood_buffer)" in line


def test_a_graph_that_was_trained_on_under_another_scenario() -> None:
    trained = manifest(graphs=("debian", "rmat:scale=10"))
    [line] = leaks(trained, SUITE)
    assert line == ("shifts/other (ood_graph): model 'mine' was trained on its graph rmat:scale=10")
    # Another graph of the same generator is another graph.
    assert leaks(manifest(graphs=("debian", "rmat:scale=11")), SUITE) == []


def test_a_graph_is_the_same_with_its_defaults_spelled_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = Entry("mesh", "nowhere:Mesh", params={"width": 30})
    monkeypatch.setitem(DATASETS._entries, "mesh", entry)
    suite = Suite.of(
        "shifts", {"scenarios": {"other": {"split": "ood_graph", "graph": "mesh:height=2"}}}
    )
    assert len(leaks(manifest(graphs=("mesh:height=2,width=30",)), suite)) == 1
    assert leaks(manifest(graphs=("mesh:height=2,width=31",)), suite) == []


def test_in_distribution_the_seed_must_be_another() -> None:
    [line] = leaks(manifest(), SUITE, seeds=[1, 2])
    assert line == ("shifts/plain (id_train): model 'mine' was trained on it at the seeds 1, too")
    # A scenario that was not trained on may have any seed.
    assert leaks(manifest(scenarios={}, graphs=()), SUITE, seeds=[1, 2]) == []


def test_a_link_makes_no_other_accesses() -> None:
    """Judged at another rate, a scenario is what was trained on; the axis ``rate`` alone may be."""
    fields = {"split": "ood_fan_out", "fan_out": [15, 30], "rate": 20.0, "rate_at": {1: 50.0}}
    slower = Suite.of(
        "slower",
        {
            "base": {"graph": "debian", "epochs": 3},
            "scenarios": {
                "wide": fields,
                "link": {"split": "ood_rate", "rate": 20.0},
            },
        },
    )
    assert leaks(manifest(), slower) == []
    seen = leaks(manifest(scenarios={"w": DIGESTS["wide"], "p": DIGESTS["plain"]}), slower)
    assert len(seen) == 1
    assert "slower/wide (ood_fan_out)" in seen[0]


def test_traces_that_were_trained_on() -> None:
    assert leaks(manifest(), SUITE, traces=["t1", "t7"]) == [
        "trace t1: model 'mine' was trained on it"
    ]
