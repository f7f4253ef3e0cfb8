from __future__ import annotations

import pytest

from rudder.result import SUMMARY_KEYS, MinibatchRow, minibatch_table
from rudder.steering.tally import Tally
from rudder.summary import steady_epoch_seconds, summarise


def row(rank: int, step: int, remote: int, hits: int, fetched: int, stall: float) -> MinibatchRow:
    return MinibatchRow(
        rank=rank, epoch=0, step=step, seeds=10, local=5, remote_sampled=remote, hits=hits,
        misses=remote - hits, replaced=fetched - (remote - hits), fetched=fetched,
        stale_share=0.0, occupancy=1.0, stall_s=stall,
    )  # fmt: skip


ROWS = [row(0, 0, 10, 4, 6, 0.5), row(0, 1, 20, 5, 17, 0.25), row(1, 0, 30, 30, 0, 0.0)]


def summary(**changes: object) -> dict[str, object]:
    values: dict[str, object] = {
        "filled": 7, "row_bytes": 100, "epoch_seconds": [[9.0, 2.0, 3.0], [1.0, 2.5, 1.0]],
        "steering": Tally(asked=4, valid=3, settled=2, right=1, latencies_s=[0.1, 0.2, 0.3]),
        "test_metric": 0.5, "run_id": "x",
    }  # fmt: skip
    return summarise(minibatch_table(ROWS), **{**values, **changes})  # type: ignore[arg-type]


def test_keys_and_order_are_those_of_every_summary() -> None:
    assert tuple(summary()) == SUMMARY_KEYS


def test_counts_are_sums_over_trainers() -> None:
    # By hand from ROWS: 10+20+30, 4+5+30, 6+15+0, 0+2+0, 6+17+0.
    found = summary()
    assert [found[k] for k in ("remote_sampled", "hits", "misses", "replaced", "fetched")] == [
        60, 39, 21, 2, 23,
    ]  # fmt: skip
    assert found["bytes_fetched"] == 2300
    assert found["hit_rate"] == pytest.approx(39 / 60)
    assert found["stall_seconds"] == pytest.approx(0.75)
    # Rank 0 fetched 23 rows, rank 1 none: 23 / mean 11.5.
    assert found["imbalance"] == pytest.approx(2.0)


def test_steering_shares() -> None:
    found = summary()
    assert (found["decisions"], found["valid_share"], found["pass_at_1"]) == (3, 0.75, 0.5)


def test_epoch_seconds_leave_the_first_epoch_out_and_take_the_slowest_rank() -> None:
    assert summary()["epoch_seconds"] == pytest.approx((2.5 + 3.0) / 2)


def test_one_epoch_has_no_steady_time() -> None:
    assert steady_epoch_seconds([[3.0], [4.0]]) is None


def test_nothing_sampled_nothing_asked_gives_nulls() -> None:
    found = summarise(
        minibatch_table([row(0, 0, 0, 0, 0, 0.0)]), filled=0, row_bytes=4, epoch_seconds=None,
        steering=Tally(), test_metric=None, run_id="x",
    )  # fmt: skip
    nulls = ("hit_rate", "imbalance", "epoch_seconds", "test_metric", "valid_share", "pass_at_1")
    assert [found[key] for key in nulls] == [None] * len(nulls)
