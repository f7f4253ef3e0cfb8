"""Observations as plain values, and as the one feature vector."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from rudder import Facts, Observation, Past, Task, Window
from rudder.conformance.situations import episode, extremes, task
from rudder.observation import feature_names, feature_vector


def test_observations_and_tasks_survive_json() -> None:
    for observation in [*episode(), *(o for _, o in extremes())]:
        assert Observation.from_dict(json.loads(json.dumps(observation.to_dict()))) == observation
    there = task(seed=3, rank=2)
    assert Task.from_dict(json.loads(json.dumps(there.to_dict()))) == there


def test_feature_vectors_are_finite_and_named() -> None:
    names = feature_names()
    assert len(names) == len(set(names))
    for observation in [*episode(), *(o for _, o in extremes())]:
        vector = feature_vector(observation)
        assert len(vector) == len(names)
        assert all(math.isfinite(value) for value in vector)


@pytest.mark.parametrize("kind", [Facts, Task, Window, Past])
def test_every_field_has_a_unit(kind: type) -> None:
    fields = dataclasses.fields(kind)
    if kind is Task:
        fields = tuple(f for f in fields if f.name != "facts")
    assert all(f.metadata.get("unit") for f in fields)
