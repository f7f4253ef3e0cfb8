from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rudder.result import MINIBATCH_SCHEMA
from rudder.tracking.metrics import (
    SUMS,
    Series,
    describe_nonfinite,
    finite_summary,
    minibatch_series,
    timestamps,
)


def table(*rows: dict[str, Any]) -> pa.Table:
    """Rows with zeros where nothing is said."""
    zeros: dict[str, Any] = dict.fromkeys(MINIBATCH_SCHEMA.names, 0)
    return pa.Table.from_pylist([{**zeros, **row} for row in rows], schema=MINIBATCH_SCHEMA)


def test_counts_are_summed_seconds_are_the_slowest_shares_are_averaged() -> None:
    series = minibatch_series(
        table(
            {"rank": 0, "step": 0, "fetched": 3, "fetch_s": 0.5, "stale_share": 0.2},
            {"rank": 0, "step": 1, "fetched": 5, "fetch_s": 0.1, "stale_share": 0.0},
            {"rank": 1, "step": 0, "fetched": 4, "fetch_s": 0.25, "stale_share": 0.4},
        )
    )
    assert series["fetched"].steps.tolist() == [0, 1]
    assert series["fetched"].values.tolist() == [7, 5]
    assert series["fetch_s"].values.tolist() == [0.5, 0.1]
    assert series["stale_share"].values.tolist() == pytest.approx([0.3, 0.0])


def test_hit_rate_is_that_of_all_ranks_and_absent_where_nothing_was_remote() -> None:
    series = minibatch_series(
        table(
            {"rank": 0, "step": 0, "remote_sampled": 10, "hits": 10},
            {"rank": 1, "step": 0, "remote_sampled": 30, "hits": 0},
            {"rank": 0, "step": 1},
            {"rank": 0, "step": 2, "remote_sampled": 4, "hits": 1},
        )
    )
    assert series["hit_rate"].steps.tolist() == [0, 2]
    assert series["hit_rate"].values.tolist() == [0.25, 0.25]


def test_loss_is_weighted_by_seeds_and_a_rank_without_seeds_has_none() -> None:
    series = minibatch_series(
        table(
            {"rank": 0, "step": 0, "seeds": 100, "loss": 1.0},
            {"rank": 1, "step": 0, "seeds": 300, "loss": 2.0},
            {"rank": 0, "step": 1, "seeds": 100, "loss": 4.0},
            {"rank": 1, "step": 1, "seeds": 0, "loss": math.nan},
        )
    )
    assert series["loss"].values.tolist() == [1.75, 4.0]


def test_null_cells_do_not_count_and_nan_stays() -> None:
    series = minibatch_series(
        table(
            {"rank": 0, "step": 0, "seeds": 1, "loss": None, "fetch_s": None},
            {"rank": 1, "step": 0, "seeds": 1, "loss": None, "fetch_s": 2.0},
            {"rank": 0, "step": 1, "seeds": 1, "loss": math.nan, "fetch_s": math.nan},
        )
    )
    assert series["loss"].steps.tolist() == [1]
    assert math.isnan(series["loss"].values[0])
    assert series["fetch_s"].values[0] == 2.0
    assert math.isnan(series["fetch_s"].values[1])


def test_an_empty_table_has_no_points() -> None:
    series = minibatch_series(MINIBATCH_SCHEMA.empty_table())
    assert all(len(each.steps) == len(each.values) == 0 for each in series.values())
    assert timestamps(series, 5) == {}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 2**31 - 1))))
def test_sums_over_steps_equal_sums_over_rows(rows: list[tuple[int, int, int]]) -> None:
    made = table(*({"rank": r, "step": s, **dict.fromkeys(SUMS, n)} for r, s, n in rows))
    for name in SUMS:
        assert minibatch_series(made)[name].values.sum() == sum(n for _, _, n in rows)


def test_time_passes_by_what_the_slowest_rank_computed_and_stalled() -> None:
    series = minibatch_series(
        table(
            {"rank": 0, "step": 0, "compute_s": 1.0, "stall_s": 0.5},
            {"rank": 1, "step": 0, "compute_s": 2.0, "stall_s": 0.0},
            {"rank": 0, "step": 1, "compute_s": math.nan, "stall_s": 0.25},
        )
    )
    assert timestamps(series, 1000) == {0: 3500, 1: 3750}


def test_numbers_of_a_summary() -> None:
    summary = {"hits": np.int64(3), "a": math.nan, "run_id": "x", "c": None, "d": True}
    assert finite_summary(summary) == {"hits": 3.0}


def test_nonfinite_points_are_named() -> None:
    steps = np.arange(4)
    assert describe_nonfinite(Series(steps, np.ones(4))) == ""
    words = describe_nonfinite(Series(steps, np.array([1, math.nan, 2, -math.inf])))
    assert words == "2 of 4: nan at 1, -inf at 3"
    many = describe_nonfinite(Series(np.arange(50), np.full(50, math.nan)))
    assert many.startswith("50 of 50: nan at 0")
    assert many.endswith("nan at 19, …")
