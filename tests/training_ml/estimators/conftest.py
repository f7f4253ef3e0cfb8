"""Made-up examples: observations of some runs whose right answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from rudder.model import Examples


def make_examples(
    count: int,
    seed: int,
    *,
    noise: float = 0.0,
    rare: float = 0.5,
    columns: int = 6,
    groups: int = 6,
) -> Examples:
    """Examples whose label is 1 where the first columns' weighted sum is above a quantile.

    Args:
        noise: standard deviation added to the sum, whose own is about 1.
        rare: share of label 1.
        groups: runs; names differ from seed to seed.
    """
    random = np.random.default_rng(seed)
    rows = random.normal(size=(count, columns)) * 10.0 ** np.arange(-2, columns - 2) + 3.0
    standard = (rows - 3.0) / 10.0 ** np.arange(-2, columns - 2)
    score = 0.8 * standard[:, 0] - 0.6 * standard[:, 1] + noise * random.normal(size=count)
    return Examples(
        names=tuple(f"column{n}" for n in range(columns)),
        rows=rows,
        labels=(score > np.quantile(score, 1 - rare)).astype(np.int8),
        weights=np.ones(count),
        groups=np.array([f"{seed}-{n}" for n in random.integers(groups, size=count)]),
    )


@pytest.fixture(scope="session")
def train() -> Examples:
    return make_examples(600, 1, noise=0.3)


@pytest.fixture(scope="session")
def validation() -> Examples:
    return make_examples(300, 2, noise=0.3)
