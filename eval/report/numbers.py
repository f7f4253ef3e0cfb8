"""Numbers as readers see them: the same in tables, figures and sentences."""

from __future__ import annotations

import math

from ..robustness.intervals import Estimate
from ..robustness.metrics import Metric

NONE = "–"
"""For what was not measured, or means nothing."""


def number(value: float, *, percent: bool = False, sign: bool = False) -> str:
    """Three significant digits; ``percent``: of a share, with one decimal."""
    if not math.isfinite(value):
        return NONE
    plus = "+" if sign else ""
    if percent:
        return f"{round(100 * value, 1) + 0.0:{plus}.1f} %"  # no minus before 0.0
    if value and not 1e-2 <= abs(value) < 1e5:
        return f"{value:{plus}.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:{plus}.{min(digits, 4)}f}"


def interval(found: Estimate, *, percent: bool = False, sign: bool = False) -> str:
    """``mean [low, high]``; the mean alone where there is no interval."""
    mean = number(found.mean, percent=percent, sign=sign)
    if not found.known:
        return mean
    ends = (
        number(end, percent=percent, sign=sign).removesuffix(" %")
        for end in (found.low, found.high)
    )
    return f"{mean} [{', '.join(ends)}]"


def shown(found: Estimate | None, metric: Metric) -> str:
    """A mean of a metric with its interval."""
    return NONE if found is None else interval(found, percent=metric.share)


def change(found: Estimate, metric: Metric) -> str:
    """A comparison: in percent for ratios, in points for shares."""
    if metric.ratio:
        return interval(_minus_one(found), percent=True, sign=True)
    if metric.share:
        return interval(found, percent=True, sign=True).replace(" %", " points")
    return interval(found, sign=True)


def _minus_one(ratio: Estimate) -> Estimate:
    return Estimate(
        ratio.mean - 1, ratio.low - 1, ratio.high - 1, ratio.p, ratio.error, ratio.freedom,
        ratio.values, ratio.scenarios, ratio.method,
    )  # fmt: skip


def count(n: int, what: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
