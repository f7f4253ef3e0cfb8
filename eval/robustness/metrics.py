"""What is compared between cells, and on which scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..cells import Cell

if TYPE_CHECKING:
    from .intervals import Estimate


@dataclass(frozen=True)
class Metric:
    """One number of a cell.

    Attributes:
        key: of the summary, or one that :func:`measure` makes.
        title: heading of a column.
        better: which values are; "" for facts that are neither.
        ratio: compared as ratios, and averaged as geometric means: values above 0 without an upper
            end, in which scenarios differ by factors.
        share: shown in percent.
    """

    key: str
    title: str
    better: Literal["low", "high", ""] = ""
    ratio: bool = False
    share: bool = False

    def scaled(self, value: float) -> float:
        """On the scale of comparison; NaN where it has no place there."""
        if not self.ratio:
            return value
        return math.log(value) if value > 0 else math.nan

    def shown(self, mean: Estimate) -> Estimate:
        """A mean on the scale of comparison, as readers know it.

        Of a share no interval reaches beyond 0 and 1, which Student's of a few seeds would.
        """
        if self.share and not self.ratio:
            low, high = (min(max(end, 0.0), 1.0) for end in (mean.low, mean.high))
            return replace(mean, low=low, high=high)
        return self.beside(mean)

    def beside(self, difference: Estimate) -> Estimate:
        """A difference on the scale of comparison, as readers know it: of logarithms a ratio."""
        return difference.exp() if self.ratio else difference


COMMUNICATION = Metric("communication", "communication", "low", ratio=True, share=True)
"""Rows fetched, as a share of those without a buffer."""
REGRET = Metric("regret", "regret to MIN", "low", ratio=True)
ORACLE_REGRET = Metric("regret_to_timing_oracle", "regret to timing-oracle", "low", ratio=True)
HITS = Metric("hit_rate", "%-Hits", "high", share=True)
EPOCH_SECONDS = Metric("epoch_seconds", "epoch, s", "low", ratio=True)
IMBALANCE = Metric("imbalance", "imbalance", "low", ratio=True)
PASS_AT_1 = Metric("pass_at_1", "Pass@1", "high", share=True)
PASS_CONSTANT = Metric("pass_at_1_constant", "best constant", share=True)
PASS_BALANCED = Metric("pass_at_1_balanced", "balanced", "high", share=True)
ACCURACY = Metric("accuracy", "accuracy", "high", share=True)
TEST_METRIC = Metric("test_metric", "model's accuracy", "high", share=True)
VALID = Metric("valid_share", "valid answers", "high", share=True)
REPLACE_SHARE = Metric("replace_share", "says replace", share=True)
OUTSIDE = Metric("outside_support_share", "outside support", share=True)
LATENCY = Metric("latency_p50_s", "latency, s", "low")
ANSWER = Metric("answer_s", "an answer, s", "low")
MEMORY = Metric("memory_mb", "memory, MB", "low")
INTERVAL = Metric("replacement_interval_mean", "replacement interval")
FETCHED = Metric("fetched", "rows fetched", "low", ratio=True)

METRICS = (
    COMMUNICATION, REGRET, ORACLE_REGRET, HITS, EPOCH_SECONDS, IMBALANCE, PASS_AT_1,
    PASS_CONSTANT, PASS_BALANCED, ACCURACY, TEST_METRIC, VALID, REPLACE_SHARE, OUTSIDE,
    LATENCY, ANSWER, MEMORY, INTERVAL,
)  # fmt: skip


def measure(cell: Cell, metric: Metric) -> float:
    """The number of a cell; NaN where it failed or the number is meaningless.

    Without a buffer there is no regret: what is fetched is all that could be.
    """
    if not cell.finished:
        return math.nan
    if metric is COMMUNICATION:
        return _communication(cell)
    if metric in (REGRET, ORACLE_REGRET) and no_buffer(cell.summary):
        return math.nan
    value = cell.value(metric.key)
    return math.nan if value is None else value


def _communication(cell: Cell) -> float:
    share = cell.value("communication_vs_no_buffer")
    if share is not None:
        return share
    fetched, sampled = cell.value("fetched"), cell.value("remote_sampled")
    return fetched / sampled if fetched is not None and sampled else math.nan


def no_buffer(summary: Mapping[str, Any]) -> bool:
    """Was it a replay in which nothing could be kept?"""
    least = summary.get("min_fetched")
    return least is not None and least == summary.get("remote_sampled") and not summary.get("hits")
