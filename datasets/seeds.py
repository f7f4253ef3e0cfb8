"""Random streams: one per purpose, so that a change in one draws nothing from another."""

from __future__ import annotations

import numpy as np

from rudder.errors import UsageError

GRAPH, FEATURES, SPLITS = 0, 1, 2


def generator(seed: int, stream: int) -> np.random.Generator:
    """The generator of a purpose.

    Raises:
        UsageError: a negative seed.
    """
    if seed < 0:
        raise UsageError(f"seed={seed} must be a whole number of at least 0")
    return np.random.default_rng([seed, stream])
