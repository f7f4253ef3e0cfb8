"""Intervals at 95 %, and p-values, for means over seeds and over scenarios with seeds.

Values come as float64 ``[..., scenarios, seeds]`` or ``[..., seeds]``; NaN = missing. Leading
dimensions are worked on together.

- *Seeds of one scenario*: Student's t below :data:`FEW` values, else a BCa bootstrap. Its level is
  raised so that it is as wide as Student's t where values are normal: percentiles of a mean are
  narrower by sqrt((n-1)/n), and know no tails of t (Hesterberg 2015, "expanded percentiles").
- *Scenarios, then seeds*: a bootstrap that draws scenarios and, in each one drawn, seeds. Drawn as
  they are, seeds would count twice, since they move the means of scenarios too; these are drawn
  in towards their mean so that the draws vary as the mean does (Davison & Hinkley 1997, 3.8). The
  interval is the estimate ± t × the standard deviation of the draws, with scenarios - 1 degrees of
  freedom; from :data:`FEW` scenarios on it is made of percentiles. Percentiles of three scenarios
  would never leave their range, and cover three times in four at best.
- *Seeds of these scenarios*: scenarios as given, only seeds vary.

The first two answer "in scenarios like these", the last "in these".
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
Scope = Literal["scenarios", "seeds"]
"""What an interval is about: scenarios like these, or these scenarios."""

FEW = 20
"""Below so many values, or scenarios, intervals are Student's."""
LEVEL = 0.95
RESAMPLES = 2000
_SEED = 20260
_TAIL = (1 + LEVEL) / 2


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval; arrays of them where leading dimensions were given.

    Attributes:
        mean: of means over scenarios, each counted alike; NaN without values.
        low, high: the interval; NaN where the values do not tell, such as for a single one.
        p: of the two-sided test that the mean is 0; NaN as the interval.
        error: standard error.
        freedom: degrees of freedom of the t distribution.
        values: how many went in.
        scenarios: how many scenarios they belong to.
        method: how the interval was made.
    """

    mean: Any
    low: Any
    high: Any
    p: Any
    error: Any
    freedom: Any
    values: int
    scenarios: int
    method: str

    @property
    def known(self) -> bool:
        """Is there an interval?"""
        return bool(np.isfinite(self.low) and np.isfinite(self.high))

    def exp(self) -> Estimate:
        """Of logarithms: a geometric mean, or a ratio, with its interval."""
        low, mean, high = (float(np.exp(x)) for x in (self.low, self.mean, self.high))
        return replace(self, mean=mean, low=low, high=high)


_NAN = float("nan")
NOTHING = Estimate(_NAN, _NAN, _NAN, _NAN, _NAN, _NAN, 0, 0, "none")


def estimate(values: Floats, scope: Scope = "scenarios") -> Estimate:
    """Mean and interval over ``[..., scenarios, seeds]``.

    Scenarios without any value are left out; with one scenario both scopes are over its seeds.
    """
    values = values[..., _any(values, keep_last=False), :]
    if not values.size:
        return NOTHING
    if values.shape[-2] == 1:
        return of_seeds(values[..., 0, :])
    return of_scenarios(values) if scope == "scenarios" else of_these(values)


def of_seeds(values: Floats) -> Estimate:
    """Mean and interval over ``[..., seeds]``: Student's t, or BCa from :data:`FEW` values on."""
    values = values[..., _any(values, keep_last=True)]
    n = values.shape[-1]
    if not n:
        return NOTHING
    mean = values.mean(-1)
    error = _divided(values.std(-1, ddof=1), np.sqrt(n)) if n > 1 else np.full_like(mean, np.nan)
    freedom = np.full_like(mean, n - 1.0)
    if n < FEW:
        return _student(mean, error, freedom, n, 1, "Student t over seeds")
    found = _student(mean, error, freedom, n, 1, "")
    low, high = _bca(values)
    constant = error <= _rounding(mean)
    low, high = np.where(constant, mean, low), np.where(constant, mean, high)
    return _scalars(mean, low, high, found.p, error, freedom, n, 1, "BCa bootstrap over seeds")


def of_scenarios(values: Floats) -> Estimate:
    """Mean and interval over ``[..., scenarios, seeds]``, two scenarios at least."""
    present = np.isfinite(values)
    counts = present.reshape(-1, *present.shape[-2:])[0].sum(-1)
    scenarios = len(counts)
    means, residuals, seeds_error = _split(values)
    mean = means.mean(-1)
    draws = _draws(means, residuals, seeds_error, present)
    error = draws.std(-1, ddof=1)
    freedom = np.full_like(mean, scenarios - 1.0)
    n = int(counts.sum())
    method = "bootstrap of scenarios, then seeds"
    found = _student(mean, error, freedom, n, scenarios, method)
    if scenarios < FEW:
        return found
    tail = stats.norm.cdf(-stats.t.ppf(_TAIL, scenarios - 1))
    low, high = np.quantile(draws, [tail, 1 - tail], axis=-1)
    return _scalars(mean, low, high, found.p, error, freedom, n, scenarios, method)


def of_these(values: Floats) -> Estimate:
    """Mean and interval over ``[..., scenarios, seeds]`` as to seeds alone.

    Degrees of freedom are Welch's: scenarios may differ in how much seeds matter in them.
    """
    present = np.isfinite(values)
    counts = present.reshape(-1, *present.shape[-2:])[0].sum(-1)
    means, _, errors = _split(values)
    scenarios = len(counts)
    # A scenario with one seed says nothing about seeds: no interval, rather than a narrow one.
    squares = (np.where(counts > 1, errors, np.nan) / scenarios) ** 2
    freedom = _divided(squares.sum(-1) ** 2, (squares**2 / np.maximum(counts - 1, 1)).sum(-1))
    return _student(
        means.mean(-1), np.sqrt(squares.sum(-1)), np.where(freedom > 0, freedom, 1.0),
        int(counts.sum()), scenarios, "Student t over the seeds of these scenarios",
    )  # fmt: skip


def apart(first: Estimate, second: Estimate) -> Estimate:
    """``second - first`` of two means that have nothing in common; Welch's degrees of freedom."""
    squares = np.asarray(first.error) ** 2, np.asarray(second.error) ** 2
    error = np.sqrt(squares[0] + squares[1])
    each = squares[0] ** 2 / first.freedom + squares[1] ** 2 / second.freedom
    freedom = _divided((squares[0] + squares[1]) ** 2, each)
    mean = np.asarray(second.mean) - np.asarray(first.mean)
    return _student(
        mean, error, np.where(freedom > 0, freedom, 1.0), first.values + second.values,
        first.scenarios + second.scenarios, "Welch's t over " + _over(first, second),
    )  # fmt: skip


def _over(first: Estimate, second: Estimate) -> str:
    single = first.scenarios < 2, second.scenarios < 2
    return "seeds" if all(single) else "seeds and scenarios" if any(single) else "scenarios"


def _draws(means: Floats, residuals: Floats, seeds_error: Floats, present: Any) -> Floats:
    """Means of :data:`RESAMPLES` draws: ``[..., draws]``.

    A draw is linear in the values, so all of them are two matrix products.
    """
    scenarios, most = means.shape[-1], residuals.shape[-1]
    mask = present.reshape(-1, *present.shape[-2:])[0]
    drawn, weights = _weights(tuple(tuple(np.flatnonzero(row)) for row in mask), most)
    centre = means.mean(-1, keepdims=True)
    between = ((means - centre) ** 2).sum(-1)
    repeated = mask.sum(-1) > 1  # a single seed tells nothing about seeds
    within = (seeds_error[..., repeated] ** 2).mean(-1) if repeated.any() else 0.0 * between
    wanted = between / (scenarios * (scenarios - 1))
    share = wanted - within / scenarios  # of the variance that scenarios' own means must bring
    shrink = np.sqrt(_divided(np.maximum(share, 0.0), between / scenarios**2))
    # Scenarios that differ by less than their seeds explain: seeds bring all of it.
    damp = np.where(share < 0, np.sqrt(_divided(wanted, within / scenarios)), 1.0)
    own = centre + (means - centre) * np.nan_to_num(shrink)[..., None]
    flat = residuals.reshape(*residuals.shape[:-2], scenarios * most)
    found: Floats = own @ drawn.T + np.nan_to_num(damp)[..., None] * (flat @ weights.T)
    return found


@lru_cache(maxsize=8)
def _weights(seeds: tuple[tuple[int, ...], ...], most: int) -> tuple[Floats, Floats]:
    """How often a draw takes each scenario, ``[draws, scenarios]``, and seed, both as shares.

    Always the same draws: a report is the same when it is written again.
    """
    rng = np.random.default_rng(_SEED)
    scenarios = len(seeds)
    picked = rng.integers(scenarios, size=(RESAMPLES, scenarios))
    drawn = np.zeros((RESAMPLES, scenarios))
    weights = np.zeros((RESAMPLES, scenarios, most))
    rows = np.arange(RESAMPLES)
    for place in range(scenarios):
        np.add.at(drawn, (rows, picked[:, place]), 1 / scenarios)
    for scenario, present in enumerate(seeds):
        # Each time that it was drawn, as many seeds as it has.
        times = np.rint(drawn[:, scenario] * scenarios).astype(int) * len(present)
        found = rng.multinomial(times, np.full(len(present), 1 / len(present)))
        weights[:, scenario, list(present)] = found / (len(present) * scenarios)
    return drawn, weights.reshape(RESAMPLES, scenarios * most)


def _split(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Scenarios' means; residuals, 0 where missing, scaled to the variance of seeds; errors."""
    counts = np.isfinite(values).sum(-1)
    means = np.nansum(values, -1) / counts
    loose = counts / np.maximum(counts - 1, 1)
    residuals = np.nan_to_num(values - means[..., None]) * np.sqrt(loose)[..., None]
    return means, residuals, np.sqrt((residuals**2).sum(-1)) / counts


def _bca(values: Floats) -> tuple[Floats, Floats]:
    n = values.shape[-1]
    wide = stats.t.ppf(_TAIL, n - 1) * np.sqrt(n / (n - 1))
    with warnings.catch_warnings():  # of equal values, which have no such interval
        warnings.simplefilter("ignore")
        found = stats.bootstrap(
            (values,), np.mean, axis=-1, n_resamples=RESAMPLES, method="BCa", vectorized=True,
            confidence_level=1 - 2 * stats.norm.cdf(-wide), batch=max(1, 4_000_000 // values.size),
            rng=np.random.default_rng(_SEED),
        ).confidence_interval  # fmt: skip
    return np.asarray(found.low), np.asarray(found.high)


def _student(
    mean: Any, error: Any, freedom: Any, values: int, scenarios: int, method: str
) -> Estimate:
    mean, error, freedom = np.broadcast_arrays(
        *(np.asarray(a, float) for a in (mean, error, freedom))
    )
    margin = stats.t.ppf(_TAIL, freedom) * error
    same = error <= _rounding(mean)  # all values alike: nothing to doubt, but that it is 0
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * stats.t.sf(np.abs(mean / error), freedom)
    p = np.where(same, np.where(np.abs(mean) <= 1e-12, 1.0, 0.0), p)
    return _scalars(
        mean, mean - margin, mean + margin, p, error, freedom, values, scenarios, method
    )


def _scalars(
    mean: Any, low: Any, high: Any, p: Any, error: Any, freedom: Any,
    values: int, scenarios: int, method: str,
) -> Estimate:  # fmt: skip
    mean, low, high, p, error, freedom = (
        float(n) if np.ndim(n) == 0 else np.asarray(n) for n in (mean, low, high, p, error, freedom)
    )
    return Estimate(mean, low, high, p, error, freedom, values, scenarios, method)


def _rounding(mean: Any) -> Any:
    """What arithmetic alone may leave of a standard error of equal values."""
    return 1e-12 * np.maximum(np.abs(mean), 1e-3)


def _any(values: Floats, *, keep_last: bool) -> Any:
    """Which seeds, or scenarios, have values."""
    present = np.isfinite(values)
    axes = tuple(range(values.ndim - (1 if keep_last else 2)))
    present = present.any(axis=axes) if axes else present
    return present if keep_last else present.any(-1)


def _divided(part: Any, whole: Any) -> Any:
    """``part / whole``; NaN where the whole is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(whole) == 0, np.nan, np.asarray(part) / whole)
