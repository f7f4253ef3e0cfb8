"""Fits the parameters of the model to one real run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import CalibrationError
from rudder.result import RunResult
from rudder.timing.machine import BURST_BYTES, Machine
from rudder.timing.phases import Load, cpu_seconds, link_seconds, pull_seconds, tokens
from rudder.timing.rounds import EpochRows, epochs_of, row_bytes_of
from rudder.timing.traffic import Traffic

Floats = npt.NDArray[np.float64]
_WARM_UP = 1
"""Epochs at the start that are left out: caches and connections are cold."""
_ALIKE = 0.2
"""Minibatches whose sizes vary less (standard deviation / mean) tell no fixed from a unit cost."""


def calibrate(
    run: RunResult,
    traffic: Traffic,
    *,
    cores: float | None = None,
    burst_bytes: float = BURST_BYTES,
) -> Machine:
    """Fit a :class:`Machine` to a real run without buffer at depth 0, whose rate changes.

    Unshaped epochs give the seconds of the CPUs; shaped ones, less these, those of the link. Epoch
    0 is left out. Seconds of computing are what is left of a round after sampling and pulling, so
    that they hold what trainers usually wait for each other. Batch sizes that change tell fixed
    seconds from those per node; without them the fixed ones are taken for 0, and named in
    ``source["assumed"]``.

    Args:
        run: such as by ``rudder train debian -c none --prefetch-depth 0 --epochs 9
            --batch-size-at 3=50 --batch-size-at 7=200 --rate-at 5=100``.
        traffic: of the same graph and partition.
        cores: that all hosts share; None = of this machine; 0 = every trainer has its own.
        burst_bytes: that pass an idle link at once; those of emulated hosts, unless given.

    Raises:
        CalibrationError: a replayed run, one at another depth or with a buffer, without an
            unshaped or without a shaped epoch, or of other ranks than ``traffic``.
    """
    scenario = run.scenario
    if "modelled" in run.summary:
        raise CalibrationError(
            f"{run.run_dir} was replayed: its seconds come from a model; calibrate from a real run"
        )
    if scenario.prefetch_depth != 0:
        raise CalibrationError(
            f"{run.run_dir} ran at prefetch depth {scenario.prefetch_depth}: its phases overlap "
            "and cannot be told apart; calibrate from a run at depth 0"
        )
    if scenario.buffer:
        raise CalibrationError(
            f"{run.run_dir} had a buffer ({scenario.buffer}), whose own work is in its seconds; "
            "calibrate from a run under the controller 'none'"
        )
    epochs = [rows for rows in epochs_of(run) if rows.epoch >= _WARM_UP]
    free = [rows for rows in epochs if scenario.rate_of(rows.epoch) == 0]
    shaped = [rows for rows in epochs if scenario.rate_of(rows.epoch) > 0]
    if not free or not shaped:
        raise CalibrationError(
            f"{run.run_dir} has {len(free)} unshaped and {len(shaped)} shaped epochs after the "
            "first; a calibration needs both, such as --rate 0 --rate-at 3=100 --epochs 5"
        )
    ranks = len(free[0].nodes)
    if ranks != len(traffic.rows):
        raise CalibrationError(f"{run.run_dir} has {ranks} ranks, the trace {len(traffic.rows)}")
    cores = float(len(os.sched_getaffinity(0))) if cores is None else cores
    row_bytes = row_bytes_of(run)
    stretch = max(1.0, ranks / cores) if cores else 1.0
    cpu, assumed = _fit_cpu(free, row_bytes, stretch)
    machine = Machine(cores=cores, **cpu, burst_bytes=burst_bytes)
    contention = traffic.contention()
    loads = [r.load(row_bytes, scenario.rate_of(r.epoch), contention, 0) for r in shaped]
    link = _fit_link(machine, shaped, loads, stretch)
    remote = sum(float(rows["remote_sampled"].sum()) for rows in epochs)
    sampling = sum(float(rows["bytes_sampling"].sum()) for rows in epochs)
    gradients = float(free[0]["bytes_gradients"].mean())
    return Machine(
        cores=cores,
        **cpu,
        **link,
        sampling_row_bytes=sampling / remote if remote else 0.0,
        burst_bytes=burst_bytes,
        model_bytes=gradients * ranks / (2 * (ranks - 1)) if ranks > 1 else 0.0,
        source={
            "run_id": run.summary["run_id"],
            "scenario": scenario.model_dump(mode="json"),
            "ranks": ranks,
            "row_bytes": row_bytes,
            "assumed": ["cores", "burst_bytes", "latency_s", *assumed],
        },
    )


def _fit_cpu(
    rows: Sequence[EpochRows], row_bytes: float, stretch: float
) -> tuple[dict[str, Any], list[str]]:
    """Seconds of one core: fixed and per unit, of each phase; and which fixed ones are assumed."""
    nodes = np.concatenate([r.nodes.ravel() for r in rows])
    varied = float(nodes.std() / nodes.mean()) >= _ALIKE
    sample = np.concatenate([r["sample_s"].ravel() for r in rows])
    fetch = np.concatenate([r["fetch_s"].ravel() for r in rows])
    rest = np.concatenate(
        [
            (r["stall_s"] + r["compute_s"]).mean(axis=0)
            - (r["sample_s"] + r["fetch_s"]).mean(axis=0)
            for r in rows
        ]
    )
    mean_nodes = np.concatenate([r.nodes.mean(axis=0) for r in rows])
    found: dict[str, Any] = {}
    for phase, unit, size, seconds in (
        ("sample", "node", nodes, sample),
        ("serve", "byte", nodes * row_bytes, fetch),
        ("train", "byte", mean_nodes * row_bytes, rest),
    ):
        fixed, slope = _line(size, seconds / stretch, varied)
        found |= {f"{phase}_fixed_s": fixed, f"{phase}_{unit}_s": slope}
    return found, [] if varied else ["sample_fixed_s", "serve_fixed_s", "train_fixed_s"]


def _line(size: Floats, seconds: Floats, varied: bool) -> tuple[float, float]:
    """Fixed and unit cost, neither below 0."""
    from scipy.optimize import nnls

    columns = np.stack([np.ones_like(size) * varied, size / size.mean()], axis=1)
    (fixed, slope), _ = nnls(columns, np.maximum(seconds, 0.0))
    return float(fixed), float(slope / size.mean())


def _fit_link(
    machine: Machine, rows: Sequence[EpochRows], loads: Sequence[Load], stretch: float
) -> dict[str, Any]:
    """Efficiency of pulls, and how long sampling waits for a link that it shares with them."""
    pulls, pulled, sampling, sampled = [], [], [], []
    slowest, waited = [], []
    for r, load in zip(rows, loads, strict=True):
        sample, serve, train = cpu_seconds(machine, load.nodes, load.nodes * load.row_bytes)
        filled = tokens(machine, stretch * train, load.rate)
        left = np.maximum(filled - load.gradient_bytes, 0.0)
        pull = pull_seconds(machine, load, r["sample_s"], left)
        pulls.append(pull.ravel())
        pulled.append((r["fetch_s"] - stretch * serve).ravel())
        wire = link_seconds(load.sampling_bytes, load.rate)
        sampling.append(wire.ravel())
        sampled.append((r["sample_s"] - stretch * sample).ravel())
        # of the rank for which a minibatch waits
        ahead = r["sample_s"] + r["fetch_s"]
        usual = (stretch * (sample + serve) + pull).max(axis=0)
        slowest.append(wire.max(axis=0))
        waited.append(ahead.max(axis=0) - usual)
    factor = _through_zero(pulls, pulled)
    efficiency = min(1.0, 1.0 / factor) if factor > 0 else 1.0
    mean = max(0.0, _through_zero(sampling, sampled))
    return {
        "efficiency": efficiency,
        "sampling_wait": mean,
        "sampling_wait_slowest": max(mean, _through_zero(slowest, waited)),
    }


def _through_zero(xs: Sequence[Floats], ys: Sequence[Floats]) -> float:
    """Slope of the line through 0 that is nearest to the points."""
    x, y = np.concatenate(xs), np.concatenate(ys)
    square = float(x @ x)
    return float(x @ y) / square if square else 0.0
