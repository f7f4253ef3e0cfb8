"""The summary of a run, from its per-minibatch table: the same keys for both engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rudder.steering.tally import Tally


def summarise(
    minibatches: pa.Table,
    *,
    filled: int,
    row_bytes: int,
    epoch_seconds: Sequence[Sequence[float]] | None,
    steering: Tally,
    test_metric: float | None,
    run_id: str,
) -> dict[str, Any]:
    """Values of :data:`rudder.result.SUMMARY_KEYS`; counts are sums over trainers.

    Args:
        minibatches: table of :data:`rudder.result.MINIBATCH_SCHEMA`, training minibatches only.
        filled: rows of the initial fills, over trainers.
        row_bytes: bytes of one feature row.
        epoch_seconds: per rank, seconds of each epoch without validation; None = not measured.
        steering: merged over trainers.
        test_metric: accuracy or micro-F1, 0..1.
    """
    columns = {
        name: _column(minibatches, name)
        for name in ("rank", "remote_sampled", "hits", "misses", "replaced", "fetched", "stall_s")
    }
    sums = {name: int(column.sum()) for name, column in columns.items() if name != "stall_s"}
    per_trainer = np.bincount(columns["rank"], weights=columns["fetched"])
    steered = steering.to_dict()
    return {
        "remote_sampled": sums["remote_sampled"],
        "hits": sums["hits"],
        "misses": sums["misses"],
        "replaced": sums["replaced"],
        "fetched": sums["fetched"],
        "filled": filled,
        "bytes_fetched": sums["fetched"] * row_bytes,
        "hit_rate": sums["hits"] / sums["remote_sampled"] if sums["remote_sampled"] else None,
        "imbalance": float(per_trainer.max() / per_trainer.mean()) if sums["fetched"] else None,
        "epoch_seconds": steady_epoch_seconds(epoch_seconds) if epoch_seconds else None,
        "stall_seconds": float(columns["stall_s"].sum()),
        "test_metric": test_metric,
        "decisions": steered["decisions"],
        "valid_share": steered["valid_share"],
        "pass_at_1": steered["pass_at_1"],
        "run_id": run_id,
    }


def steady_epoch_seconds(ranks: Sequence[Sequence[float]]) -> float | None:
    """Mean over the epochs but the first of the slowest rank's seconds; None with one epoch."""
    slowest = np.asarray(ranks, dtype=np.float64).max(axis=0)
    return float(slowest[1:].mean()) if slowest.size > 1 else None


def _column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    column: npt.NDArray[Any] = table.column(name).to_numpy()
    return column
