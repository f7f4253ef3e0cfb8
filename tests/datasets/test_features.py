"""Features that are derived from the structure, against a naive account of the stated rule."""

from __future__ import annotations

import numpy as np
from rudder_datasets.features import structural_features
from rudder_datasets.seeds import FEATURES, generator


def test_derived_features_follow_their_rule() -> None:
    rng = np.random.default_rng(1)
    nodes, width, seed = 40, 9, 3
    src, dst = rng.integers(0, 30, 200), rng.integers(0, 39, 200)  # the last node is isolated
    inputs = {node: src[dst == node] for node in range(nodes)}
    field = generator(seed, FEATURES).standard_normal((nodes, width - 2), dtype=np.float32)
    for _ in range(2):
        means = [
            field[inputs[node]].mean(axis=0) if inputs[node].size else np.zeros(width - 2)
            for node in range(nodes)
        ]
        field = (field + np.array(means)) / 2
    degrees = [
        [np.log(1 + inputs[node].size), np.log(1 + np.sum(src == node))] for node in range(nodes)
    ]
    table = np.concatenate([degrees, field], axis=1)
    wanted = (table - table.mean(axis=0)) / table.std(axis=0)
    found = structural_features(src, dst, nodes, width, seed)
    assert found.dtype == np.float32
    assert np.allclose(found, wanted, atol=1e-4)
    assert not np.allclose(structural_features(src, dst, nodes, width, seed + 1), wanted, atol=0.1)
