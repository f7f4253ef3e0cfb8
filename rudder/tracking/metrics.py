"""The per-minibatch table as metrics over steps, put together over ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rudder.result import RunResult

SUMS = ("remote_sampled", "fetched", "replaced", "bytes_features", "bytes_ids")
"""Counts: the sum over ranks."""
MAXIMA = ("sample_s", "fetch_s", "compute_s", "stall_s", "wait_decision_s")
"""Seconds: the slowest rank, for the others wait for it."""
MEANS = ("stale_share", "occupancy")
"""Shares of a rank's buffer: the mean over ranks."""
PREFIX = "minibatch/"
"""Keeps a minibatch's metric apart from the summary's of the same name."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Series:
    """One metric over minibatches: ``steps`` ascending, ``values`` of the same length."""

    steps: Ints
    values: Floats

    def finite(self) -> Series:
        """Without the points that are NaN or infinite."""
        keep = np.isfinite(self.values)
        return Series(self.steps[keep], self.values[keep])


def minibatch_series(table: pa.Table) -> dict[str, Series]:
    """Aggregate a table of :data:`rudder.result.MINIBATCH_SCHEMA` over ranks, per step.

    Besides :data:`SUMS`, :data:`MAXIMA` and :data:`MEANS`: ``hit_rate`` is the ranks' hits over
    their remote nodes (no point where none was sampled), ``loss`` the mean weighted by seeds. Rows
    that are null in a column do not count for it; a step where no rank has a value has no point.
    NaN and infinity stay, so that nobody takes them for numbers.
    """
    steps = _column(table, "step").astype(np.int64)
    found: dict[str, Series] = {}
    hits, remote = _total(table, steps, "hits"), _total(table, steps, "remote_sampled")
    some = remote.values > 0
    found["hit_rate"] = Series(remote.steps[some], hits.values[some] / remote.values[some])
    for name in SUMS:
        found[name] = _total(table, steps, name)
    for name in MAXIMA:
        at, values, rows = _grouped(table, steps, name, _filled(table, name))
        largest = np.full(len(at), -math.inf)
        with np.errstate(invalid="ignore"):  # NaN wins, quietly
            np.maximum.at(largest, rows, values)
        found[name] = Series(at, largest)
    for name in MEANS:
        found[name] = _mean(table, steps, name, np.ones(len(steps)))
    found["loss"] = _mean(table, steps, "loss", _column(table, "seeds").astype(np.float64))
    return found


def timestamps(series: Mapping[str, Series], start_ms: int) -> dict[int, int]:
    """When each step ended, in ms: start plus the seconds computed and stalled so far.

    Derived from the table alone: a run that is sent twice has the same points, and MLflow keeps
    one of each.
    """
    seconds = {int(step): 0.0 for each in series.values() for step in each.steps}
    for name in ("compute_s", "stall_s"):
        for step, value in zip(series[name].steps, series[name].values, strict=True):
            seconds[int(step)] += float(value) if math.isfinite(value) else 0.0
    found, passed = {}, 0.0
    for step in sorted(seconds):
        passed += seconds[step]
        found[step] = start_ms + round(passed * 1000)
    return found


def finite_summary(summary: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a summary."""
    return {key: value for key, value in _numbers(summary).items() if math.isfinite(value)}


def split_finite(values: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, str]]:
    """The finite numbers, and tags that tell the others."""
    numbers = _numbers(values)
    finite = {key: value for key, value in numbers.items() if math.isfinite(value)}
    return finite, _as_tags({k: str(v) for k, v in numbers.items() if k not in finite})


def result_tags(result: RunResult) -> dict[str, str]:
    """Tags that tell what of a run is NaN or infinite."""
    return _as_tags(nonfinite(result))


def _as_tags(words: Mapping[str, str]) -> dict[str, str]:
    return {f"rudder.nonfinite.{key}": value for key, value in words.items()}


def nonfinite(result: RunResult) -> dict[str, str]:
    """What of a run is NaN or infinite: metric -> value, or the steps and their values."""
    found = {
        key: str(value)
        for key, value in _numbers(result.summary).items()
        if not math.isfinite(value)
    }
    for name, series in minibatch_series(result.minibatches).items():
        if words := describe_nonfinite(series):
            found[PREFIX + name] = words
    return found


def describe_nonfinite(series: Series, most: int = 20) -> str:
    """Which steps hold NaN or infinity, in words; empty if none does."""
    (bad,) = np.nonzero(~np.isfinite(series.values))
    if not len(bad):
        return ""
    listed = ", ".join(f"{series.values[i]} at {series.steps[i]}" for i in bad[:most])
    more = ", …" if len(bad) > most else ""
    return f"{len(bad)} of {len(series.values)}: {listed}{more}"


def _numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in summary.items()
        if isinstance(value, Real) and not isinstance(value, bool)
    }


def _column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    return np.asarray(table[name].to_numpy())


def _filled(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    return np.asarray(table[name].is_valid().to_numpy(), dtype=np.bool_)


def _grouped(
    table: pa.Table, steps: Ints, name: str, keep: npt.NDArray[np.bool_]
) -> tuple[Ints, Floats, Ints]:
    """Distinct steps of the kept rows, the rows' values, and each row's place among the steps."""
    at, rows = np.unique(steps[keep], return_inverse=True)
    return at, _column(table, name)[keep].astype(np.float64), rows


def _total(table: pa.Table, steps: Ints, name: str) -> Series:
    at, values, rows = _grouped(table, steps, name, _filled(table, name))
    return Series(at, np.bincount(rows, weights=values, minlength=len(at)).astype(np.float64))


def _mean(table: pa.Table, steps: Ints, name: str, weights: Floats) -> Series:
    keep = _filled(table, name) & (weights > 0)
    at, values, rows = _grouped(table, steps, name, keep)
    weighted = np.bincount(rows, weights=values * weights[keep], minlength=len(at))
    return Series(at, weighted / np.bincount(rows, weights=weights[keep], minlength=len(at)))
