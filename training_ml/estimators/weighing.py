"""What all estimators do alike: weights, the loss they are judged by, choice by validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from rudder.model import Examples, Rows, Told

Values = npt.NDArray[np.float64]
_Value = TypeVar("_Value")
_Model = TypeVar("_Model")
_LEAST = 1e-7
"""Probabilities this near to 0 and 1 count as that far off, so that one row cannot be all."""


def weigh(examples: Examples, balance: bool) -> Values:
    """Weights to fit or judge with, float64 (examples,), mean 1.

    What a mistake costs is kept within a class. ``balance``: both classes weigh the same in sum, so
    that the rarer one is not passed over; p = 0.5 then means even odds against the base rate.
    """
    weights = examples.weights
    if balance:
        chosen = examples.labels == 1
        weights = weights / np.where(chosen, weights[chosen].sum(), weights[~chosen].sum())
    result: Values = weights / weights.mean()
    return result


def log_loss(labels: npt.NDArray[np.int8], p: Values, weights: Values) -> float:
    """Mean negative log-likelihood, in nats, of p(replace), float64 (n,)."""
    likely = np.clip(np.where(labels == 1, p, 1.0 - p), _LEAST, 1.0)
    return float(-(weights * np.log(likely)).sum() / weights.sum())


class Choice(NamedTuple, Generic[_Value, _Model]):
    """The candidate with the least loss on the validation part."""

    value: _Value
    model: _Model
    loss: float


def choose(
    what: str,
    candidates: Sequence[_Value],
    fit: Callable[[_Value], _Model],
    loss: Callable[[_Model], float],
    progress: Told,
) -> Choice[_Value, _Model]:
    """Fit one model per candidate and keep the best; of equals the first.

    What early stopping is to estimators that are not fitted round by round.
    """
    best: Choice[_Value, _Model] | None = None
    for number, value in enumerate(candidates):
        progress(f"{what}={value}", number / len(candidates))
        model = fit(value)
        found = loss(model)
        if best is None or found < best.loss:
            best = Choice(value, model, found)
    assert best is not None
    return best


def sklearn_seed(seed: int) -> int:
    """Any whole number as scikit-learn takes seeds: 32 bits."""
    return seed % 2**32


@contextmanager
def one_thread(rows: Rows | None = None) -> Iterator[None]:
    """Keep the linear algebra below to the calling thread; it may have the other cores' work.

    Args:
        rows: what will be multiplied. A single row is too small for any library to share out, and
            setting limits would take longer than predicting it. None = more than that.
    """
    if rows is not None and len(rows) == 1:
        yield
    else:
        with threadpool_limits(1):
            yield


def positive(**values: float) -> None:
    """Check hyperparameters.

    Raises:
        ValueError: names one that is not above 0, or not finite.
    """
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise ValueError(f"{name} must be above 0, found {value!r}")


def within(low: float, high: float, **values: Any) -> None:
    """Check hyperparameters.

    Raises:
        ValueError: names one that is not in ``low``..``high``.
    """
    for name, value in values.items():
        if not low <= value <= high:
            raise ValueError(f"{name} must lie in {low}..{high}, found {value!r}")
