"""What the timing oracle makes of the futures that it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from rudder.decision import Decision
from rudder.errors import ControllerError
from rudder.replay.foresight import Outlook
from rudder.replay.oracle import TimingOracle


class Shown:
    """A future by what is answered now and later, each ``R`` (replace) or ``K`` (keep)."""

    def __init__(self, rows: dict[str, int], seconds: dict[str, float] | None = None) -> None:
        self.rows, self.seconds = rows, seconds or dict.fromkeys(rows, 0.0)
        self.horizons: list[int] = []

    def roll_out(self, decision: Decision, then: Decision, horizon: int) -> Outlook:
        self.horizons.append(horizon)
        key = "".join("R" if each.replace else "K" for each in (decision, then))
        return Outlook(self.rows[key], self.seconds[key], horizon)


def decided(future: Shown, **params: Any) -> bool:
    oracle = TimingOracle(**params)
    oracle.foresee(future)
    replace: bool = oracle._decide(None).replace  # type: ignore[arg-type]
    return replace


@pytest.mark.parametrize(
    ("rows", "replace"),
    [
        ({"RR": 7, "RK": 7, "KR": 7, "KK": 7}, False),  # a tie keeps
        ({"RR": 5, "RK": 9, "KR": 7, "KK": 6}, True),  # replacing goes with replacing later
        ({"RR": 9, "RK": 5, "KR": 7, "KK": 6}, True),  # … and with keeping later
        ({"RR": 6, "RK": 7, "KR": 5, "KK": 9}, False),
        ({"RR": 6, "RK": 7, "KR": 9, "KK": 5}, False),
    ],
)
def test_a_branch_counts_by_the_better_of_two_schedules(
    rows: dict[str, int], replace: bool
) -> None:
    assert decided(Shown(rows)) is replace


def test_seconds_and_rows_may_disagree() -> None:
    rows = {"RR": 5, "RK": 5, "KR": 6, "KK": 6}
    future = Shown(rows, {"RR": 3.0, "RK": 3.0, "KR": 2.0, "KK": 4.0})
    assert decided(future)
    assert not decided(future, objective="seconds")


def test_it_looks_as_far_ahead_as_it_was_told() -> None:
    future = Shown(dict.fromkeys(("RR", "RK", "KR", "KK"), 1))
    decided(future)
    decided(future, horizon=5)
    assert future.horizons == [32] * 4 + [5] * 4


def test_without_a_trace_it_cannot_decide() -> None:
    with pytest.raises(ControllerError, match="no trace to look ahead in"):
        TimingOracle()._decide(None)  # type: ignore[arg-type]
