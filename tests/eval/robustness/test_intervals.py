"""Intervals: by hand, beside SciPy, and how often they hold what was planted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from rudder_eval.robustness.intervals import (
    FEW,
    Estimate,
    Floats,
    apart,
    estimate,
    of_scenarios,
    of_seeds,
    of_these,
)
from scipy import stats

RNG = np.random.default_rng


def test_few_seeds_are_students_by_hand() -> None:
    values = np.array([[1.0, 2.0, 3.0, 4.0]])
    found = estimate(values)
    # mean 2.5, sd sqrt(5/3), error sqrt(5/12), t(0.975, 3) = 3.182446
    assert found.mean == 2.5
    assert found.error == pytest.approx(0.6454972)
    assert (found.low, found.high) == pytest.approx((0.4457397, 4.5542603), abs=1e-6)
    assert found.p == pytest.approx(stats.ttest_1samp(values[0], 0).pvalue)
    assert (found.values, found.scenarios) == (4, 1)


def test_many_seeds_are_bootstrapped_and_lean_as_the_values_do() -> None:
    skewed = RNG(3).exponential(size=40)
    found = estimate(skewed[None])
    assert found.method.startswith("BCa")
    assert found.high - found.mean > 1.1 * (found.mean - found.low)
    few = estimate(skewed[None, : FEW - 1])
    assert few.high - few.mean == pytest.approx(few.mean - few.low)


def test_missing_values_are_left_out_not_taken_for_zeros() -> None:
    values = np.array([[1.0, np.nan, 3.0, 2.0], [np.nan] * 4])
    found = estimate(values)
    assert (found.mean, found.values, found.scenarios) == (2.0, 3, 1)
    assert estimate(np.full((2, 3), np.nan)).values == 0
    assert np.isnan(estimate(np.full((2, 3), np.nan)).mean)


def test_scenarios_count_alike_however_many_seeds_they_have() -> None:
    values = np.array([[1.0, 1.0, 1.0, 1.0], [5.0, np.nan, np.nan, 7.0], [3.0, 3.0, 3.0, 3.0]])
    for found in (of_scenarios(values), of_these(values)):
        assert found.mean == pytest.approx((1 + 6 + 3) / 3)
        assert found.values == 10


def test_a_single_value_has_no_interval() -> None:
    found = estimate(np.array([[2.0]]))
    assert found.mean == 2.0
    assert not found.known
    assert np.isnan(found.p)
    assert not of_these(np.array([[2.0, np.nan], [1.0, 1.1]])).known


@pytest.mark.parametrize("shape", [(1, 5), (1, 25), (4, 5), (25, 5)])
def test_equal_values_leave_nothing_to_doubt(shape: tuple[int, int]) -> None:
    for value, p in ((0.0, 1.0), (0.3, 0.0)):
        found = estimate(np.full(shape, value))
        assert (found.low, found.high) == pytest.approx((value, value))
        assert found.p == p


def test_with_few_scenarios_the_draws_vary_as_the_mean_does() -> None:
    """Draws of scenarios, then of seeds: the interval is that of the scenarios' means."""
    for between in (0.0, 0.3, 2.0):
        random = RNG(5)
        values = random.normal(size=(6, 1)) * between + random.normal(size=(6, 10))
        found = of_scenarios(values)
        low, high = stats.ttest_1samp(values.mean(1), 0).confidence_interval()
        assert (found.low, found.high) == pytest.approx((low, high), rel=0.06)


def test_draws_are_the_same_each_time() -> None:
    values = RNG(0).normal(size=(5, 8))
    assert of_scenarios(values) == of_scenarios(values)
    many = RNG(0).normal(size=(1, 30))
    assert estimate(many) == estimate(many)


def test_welch_by_scipy() -> None:
    first, second = RNG(1).normal(size=8), RNG(2).normal(2, 3, size=15)
    found = apart(of_seeds(first), of_seeds(second))
    expected = stats.ttest_ind(second, first, equal_var=False)
    assert found.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


Draw = Callable[[np.random.Generator, int], Estimate]


def _scenarios(random: np.random.Generator, sweeps: int, shape: tuple[int, int]) -> Floats:
    """Differences in scenarios that differ among each other as much as seeds do."""
    scenarios, seeds = shape
    own = random.normal(0.2, 0.4, (sweeps, scenarios, 1))
    return own + random.normal(0, 1, (sweeps, scenarios, seeds))


def _these(random: np.random.Generator, sweeps: int) -> Floats:
    """The same scenarios in each sweep, some of them noisier."""
    own = np.array([-1.0, 0.0, 0.5, 1.3])[:, None]
    return own + random.normal(size=(sweeps, 4, 10)) * np.array([0.5, 1.0, 2.0, 0.1])[:, None]


def _gap(random: np.random.Generator, sweeps: int) -> Estimate:
    inside = of_scenarios(_scenarios(random, sweeps, (3, 10)))
    return apart(inside, of_scenarios(0.2 + _scenarios(random, sweeps, (8, 10))))


CASES: dict[str, Draw] = {
    "10 seeds": lambda r, n: of_seeds(r.normal(0.2, 1, (n, 10))),
    "20 seeds": lambda r, n: of_seeds(r.normal(0.2, 1, (n, 20))),
    "30 seeds": lambda r, n: of_seeds(r.normal(0.2, 1, (n, 30))),
    "3 scenarios": lambda r, n: of_scenarios(_scenarios(r, n, (3, 10))),
    "8 scenarios": lambda r, n: of_scenarios(_scenarios(r, n, (8, 5))),
    "24 scenarios": lambda r, n: of_scenarios(_scenarios(r, n, (24, 5))),
    "these 4 scenarios": lambda r, n: of_these(_these(r, n)),
    "out - in": _gap,
}


def _covered(case: str, sweeps: int) -> float:
    found = CASES[case](RNG(11), sweeps)
    return float(np.mean((found.low <= 0.2) & (found.high >= 0.2)))


@pytest.mark.parametrize("case", CASES)
def test_intervals_cover_93_to_97_percent_of_2000_sweeps(case: str) -> None:
    assert 0.93 <= _covered(case, 2000) <= 0.97
