from __future__ import annotations

import numpy as np
import pytest
from rudder_eval.report.numbers import NONE, change, count, interval, number, shown
from rudder_eval.robustness.intervals import estimate
from rudder_eval.robustness.metrics import COMMUNICATION, HITS, LATENCY


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1.00"), (12.345, "12.3"), (0.0996, "0.0996"), (5e-4, "0.0005"),
     (3e-7, "3e-07"), (60466, "60466"), (2_500_000, "2.5e+06"), (-1.5, "-1.50"),
     (float("nan"), NONE), (float("inf"), NONE)],
)  # fmt: skip
def test_three_significant_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_percent_and_sign() -> None:
    assert number(0.1234, percent=True) == "12.3 %"
    assert number(0.1234, percent=True, sign=True) == "+12.3 %"
    assert number(-0.0001, percent=True) == "0.0 %"


def test_intervals_ratios_and_points() -> None:
    found = estimate(np.log(np.array([[1.1, 1.1, 1.1]])))
    assert interval(found.exp()) == "1.10 [1.10, 1.10]"
    assert change(found.exp(), COMMUNICATION) == "+10.0 % [+10.0, +10.0]"
    assert change(estimate(np.array([[-0.04, -0.04]])), HITS) == "-4.0 points [-4.0, -4.0]"
    assert change(estimate(np.array([[0.5, 0.5]])), LATENCY) == "+0.500 [+0.500, +0.500]"
    assert interval(estimate(np.array([[0.25]]))) == "0.250"
    assert shown(None, HITS) == NONE


def test_no_interval_of_a_share_reaches_beyond_all_and_nothing() -> None:
    # Student's t of two values: 0.4 +- 12.706 * 0.1 = [-0.87, 1.67].
    found = HITS.shown(estimate(np.array([[0.3, 0.5]])))
    assert shown(found, HITS) == "40.0 % [0.0, 100.0]"
    # What changes may be below 0, and a share of no buffer above 1.
    assert HITS.beside(estimate(np.array([[-0.3, -0.5]]))).low < -1
    assert COMMUNICATION.shown(estimate(np.log(np.array([[0.7, 1.5]])))).high > 1


def test_counts() -> None:
    assert (count(1, "run"), count(2, "run")) == ("1 run", "2 runs")
