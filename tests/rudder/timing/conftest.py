"""Runs whose seconds are made by the model itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rudder.result import MinibatchRow, RunResult, minibatch_table
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.timing import Machine, Traffic
from rudder.timing.phases import Load, phases
from rudder.timing.recurrence import run_epoch
from rudder.trace import Manifest, RankFacts, TraceRow, TraceWriter, start_trace

ROW_BYTES = 100
MakeRun = Callable[..., RunResult]


@pytest.fixture
def traffic() -> Traffic:
    """Two hosts that fetch alike: no contention beyond their own rows."""
    return Traffic(np.array([[0.0, 10.0], [10.0, 0.0]]))


@pytest.fixture
def machine() -> Machine:
    return Machine(
        cores=1, sample_fixed_s=2e-3, sample_node_s=1e-6, serve_fixed_s=1e-3, serve_byte_s=1e-8,
        train_fixed_s=3e-3, train_byte_s=2e-8, efficiency=0.9, sampling_wait=3.0,
        sampling_wait_slowest=3.0, sampling_row_bytes=30.0, model_bytes=40_000, burst_bytes=0.0,
        source={"run_id": "made"},
    )  # fmt: skip


@pytest.fixture
def make_run(machine: Machine, tmp_path: Path) -> MakeRun:
    """``make_run(rates=…, batch=…, **scenario fields)``: one rate and batch size per epoch.

    Two ranks, 20 minibatches per epoch; its seconds are those of :func:`machine`.
    """

    def make(
        rates: tuple[float, ...] = (0, 0, 0, 50, 50), batch: tuple[int, ...] = (8, 2, 8, 8, 2),
        *, of: Machine = machine, **fields: Any,
    ) -> RunResult:  # fmt: skip
        scenario = Scenario.make(
            graph="made", parts=2, epochs=len(rates), rate=rates[0], batch_size=batch[0],
            rate_at={e: r for e, r in enumerate(rates) if e},
            **{"prefetch_depth": 0, "buffer": 0, **fields},
        )  # fmt: skip
        rng = np.random.default_rng(0)
        rows: list[MinibatchRow] = []
        seconds = []
        for epoch, (rate, size) in enumerate(zip(rates, batch, strict=True)):
            counts = rng.integers(90, 110, (2, 2, 20)) * size
            local, remote = counts
            sampling = remote * 30.0
            if scenario.prefetch_depth:
                sampling = np.broadcast_to(sampling.mean(axis=0), sampling.shape)
            load = Load(
                counts.sum(axis=0).astype(float), remote.astype(float), sampling,
                np.full(remote.shape, 40_000.0), ROW_BYTES, np.asarray(rate), np.ones((2, 1)),
            )  # fmt: skip
            found = phases(of, load, 2, scenario.prefetch_depth)
            ended = run_epoch(found, scenario.prefetch_depth)
            starts = np.concatenate([[0.0], ended.trained[:-1]])
            compute = ended.trained - (starts + ended.stall_s)
            seconds.append(ended.seconds)
            for rank in range(2):
                for i in range(20):
                    rows.append(
                        MinibatchRow(
                            rank=rank, epoch=epoch, step=20 * epoch + i, seeds=size,
                            local=int(local[rank, i]), remote_sampled=int(remote[rank, i]),
                            hits=0, misses=int(remote[rank, i]), replaced=0,
                            fetched=int(remote[rank, i]), stale_share=0.0, occupancy=0.0,
                            sample_s=float(found.sample_s[rank, i]),
                            fetch_s=float(found.fetch_s[rank, i]),
                            compute_s=float(compute[rank, i]),
                            stall_s=float(ended.stall_s[rank, i]),
                            bytes_features=int(remote[rank, i]) * ROW_BYTES,
                            bytes_sampling=int(remote[rank, i]) * 30, bytes_gradients=40_000,
                        )
                    )  # fmt: skip
        fetched = sum(row.fetched for row in rows)
        summary = {"fetched": fetched, "bytes_fetched": fetched * ROW_BYTES, "run_id": "made"}
        epochs = [{"epoch": e, "seconds": s} for e, s in enumerate(seconds)]
        return RunResult(
            scenario, Spec.parse("none"), minibatch_table(rows), [], summary,
            {"epochs": [epochs, epochs]}, tmp_path / "run",
        )  # fmt: skip

    return make


@pytest.fixture
def make_trace() -> Callable[..., Path]:
    """``make_trace(folder, parts, …)``: ten nodes per part; each rank samples one of every other.

    Further arguments are trainers, the digest of the graph, and scenario fields.
    """

    return _make_trace


def _make_trace(
    folder: Path, parts: int, trainers: int = 1, graph: str = "graph", **fields: Any
) -> Path:
    scenario = Scenario.make(
        **{"graph": "tiny", "parts": parts, "trainers": trainers, "epochs": 1, "batch_size": 2,
           **fields}
    )  # fmt: skip
    manifest = Manifest(
        f"t{parts}", "sampler", scenario, graph, "partition", 10 * parts, 40, 100,
        (10,) * parts, (parts - 1,) * parts,
    )  # fmt: skip
    halos = [np.array([10 * q for q in range(parts) if q != p], np.int64) for p in range(parts)]
    start_trace(folder, manifest, halos, np.ones(10 * parts, np.int32))
    for rank in range(parts * trainers):
        with TraceWriter(folder, manifest, RankFacts(rank, (4,), "seeds")) as writer:
            for step in range(4):
                writer.append(TraceRow(0, step, halos[rank // trainers], 5, 2))
    return folder
