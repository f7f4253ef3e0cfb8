"""Figures of one run, as PNG; lines and hatches differ, so that they read without colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rudder.tracking.metrics import Floats, minibatch_series

_TRAINER = (("compute_s", "compute", "0.35", ""), ("stall_s", "stall", "0.95", "///"))
_PIPELINE = (
    ("sample_s", "sample", "0.6", ""),
    ("fetch_s", "fetch", "0.85", "\\\\\\"),
    ("wait_decision_s", "wait for decision", "1.0", "xxx"),
)


def draw(table: pa.Table, folder: Path) -> None:
    """Write ``hits_and_communication.png`` and ``time_split.png``; none for an empty table."""
    if not table.num_rows:
        return
    folder.mkdir(parents=True, exist_ok=True)
    _hits_and_communication(table).savefig(folder / "hits_and_communication.png")
    _time_split(table).savefig(folder / "time_split.png")


def _hits_and_communication(table: pa.Table) -> Figure:
    series = minibatch_series(table)
    figure = Figure(figsize=(8, 5), dpi=110, layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    hit_rate, fetched, replaced = (series[k] for k in ("hit_rate", "fetched", "replaced"))
    top.plot(hit_rate.steps, 100 * hit_rate.values, "k-", linewidth=1)
    top.set(ylabel="%-Hits", ylim=(0, 100), title="all trainers, per minibatch")
    bottom.plot(fetched.steps, fetched.values, "k-", linewidth=1, label="rows fetched")
    bottom.plot(replaced.steps, replaced.values, "k:", linewidth=1.5, label="rows replaced")
    bottom.set(xlabel="minibatch", ylabel="communication (rows)", ylim=(0, None))
    bottom.legend(loc="upper right", fontsize="small")
    starts = _epoch_starts(table)
    for axes in (top, bottom):
        for start in starts[1:]:
            axes.axvline(start - 0.5, color="0.7", linewidth=0.8, linestyle="--")
    return figure


def _time_split(table: pa.Table) -> Figure:
    epochs = np.unique(table["epoch"].to_numpy())
    figure = Figure(figsize=(8, 4), dpi=110, layout="constrained")
    axes = figure.subplots()
    _stack(axes, table, epochs - 0.2, _TRAINER)
    _stack(axes, table, epochs + 0.2, _PIPELINE)
    axes.set(
        xlabel="epoch",
        ylabel="seconds (mean of the trainers)",
        title="time split: training (left bars) beside sampling and pulls (right bars)",
    )
    axes.set_xticks(epochs)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _stack(
    axes: Axes, table: pa.Table, at: Floats, parts: Sequence[tuple[str, str, str, str]]
) -> None:
    base = np.zeros(len(at))
    for column, label, grey, hatch in parts:
        height = _seconds_per_epoch(table, column)
        axes.bar(
            at, height, 0.36, base, label=label, color=grey, hatch=hatch, edgecolor="k", lw=0.6
        )
        base = base + np.nan_to_num(height)


def _seconds_per_epoch(table: pa.Table, column: str) -> Floats:
    epochs, rows = np.unique(table["epoch"].to_numpy(), return_inverse=True)
    ranks = len(np.unique(table["rank"].to_numpy()))
    seconds = np.nan_to_num(table[column].to_numpy().astype(np.float64))
    return np.bincount(rows, weights=seconds, minlength=len(epochs)) / ranks


def _epoch_starts(table: pa.Table) -> list[int]:
    epoch, step = table["epoch"].to_numpy(), table["step"].to_numpy()
    return [int(step[epoch == value].min()) for value in np.unique(epoch)]
