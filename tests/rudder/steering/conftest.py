"""Tasks, rows and controllers for the tests of steering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rudder import Facts, Task
from rudder.result import MinibatchRow

MakeTask = Callable[..., Task]
MakeRow = Callable[..., MinibatchRow]


@pytest.fixture
def make_task() -> MakeTask:
    """``make_task(total_minibatches=…, seed=…, rank=…)``; other facts are plausible constants."""

    def make(*, total_minibatches: int = 100, seed: int = 0, rank: int = 0, **facts: Any) -> Task:
        values: dict[str, Any] = {
            "graph": "tiny",
            "nodes": 1000,
            "edges": 8000,
            "feature_bytes": 100,
            "parts": 4,
            "part_nodes": 250,
            "halo_nodes": 400,
            "remote_nodes": 750,
            "batch_size": 10,
            "fan_out": (10, 25),
            "capacity": 100,
            "trainers": 4,
            "epochs": 2,
            "total_minibatches": total_minibatches,
            "policy": "score",
            **facts,
        }
        return Task(Facts(**values), seed=seed, rank=rank)

    return make


@pytest.fixture
def make_row() -> MakeRow:
    """``make_row(step, hits=…, fetched=…)``: 100 remote nodes sampled, half of them found."""

    def make(step: int, *, sampled: int = 100, hits: int = 50, **values: Any) -> MinibatchRow:
        fields: dict[str, Any] = {
            "rank": 0,
            "epoch": step // 50,
            "step": step,
            "seeds": 10,
            "local": 40,
            "remote_sampled": sampled,
            "hits": hits,
            "misses": sampled - hits,
            "replaced": 0,
            "fetched": sampled - hits,
            "stale_share": 0.25,
            "occupancy": 1.0,
            "sample_s": 0.01,
            "fetch_s": 0.02,
            **values,
        }
        return MinibatchRow(**fields)

    return make
