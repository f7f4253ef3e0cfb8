"""Small traces, made from lists of ids, and their replays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rudder.engine import RunOptions
from rudder.home import Home
from rudder.replay.engine import ReplayEngine
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.trace import Manifest, RankFacts, Trace, TraceRow, TraceWriter, start_trace

Accesses = Sequence[Sequence[Sequence[int]]]
"""Per rank, per minibatch: remote ids."""
MakeTrace = Callable[..., Trace]
Replay = Callable[..., RunResult]


@pytest.fixture(scope="session")
def fewest() -> Callable[..., int]:
    """``fewest(capacity, filled, minibatches)``: the fewest rows that must be fetched.

    Exhaustive: over every set of nodes that could be kept after every minibatch.
    """

    def search(capacity: int, filled: Sequence[int], trace: Sequence[Sequence[int]]) -> int:
        wanted = tuple(frozenset(nodes) for nodes in trace)

        @cache
        def rest(now: int, held: frozenset[int]) -> int:
            if now == len(wanted):
                return 0
            pool = held | wanted[now]
            kept = itertools.combinations(sorted(pool), min(capacity, len(pool)))
            return len(wanted[now] - held) + min(rest(now + 1, frozenset(k)) for k in kept)

        return rest(0, frozenset(filled))

    return search


@pytest.fixture
def make_trace(tmp_path: Path) -> MakeTrace:
    """``make_trace(accesses, part_nodes=…, halos=…, epochs=…, seconds=…, **scenario fields)``.

    One trainer per part. A rank's minibatches are dealt evenly to the epochs. Halos are, unless
    given, all ids that a rank accesses; degrees fall with the id, so that the fill by degree takes
    the smallest ids first.
    """

    def make(
        accesses: Accesses,
        *,
        part_nodes: Sequence[int],
        halos: Sequence[Sequence[int]] | None = None,
        epochs: int = 1,
        seconds: dict[str, float] | None = None,
        name: str = "tiny",
        **fields: Any,
    ) -> Trace:
        nodes = sum(part_nodes)
        if halos is None:
            halos = [sorted({i for ids in rank for i in ids}) for rank in accesses]
        scenario = Scenario.make(
            graph=name, parts=len(part_nodes), epochs=epochs, batch_size=2, **fields
        )
        manifest = Manifest(
            name, "sampler", scenario, "graph", "partition", nodes, 4 * nodes, 400,
            tuple(part_nodes), tuple(len(halo) for halo in halos),
        )  # fmt: skip
        folder = tmp_path / f"{name}.trace"
        start_trace(
            folder, manifest, [np.array(h, np.int64) for h in halos],
            np.arange(nodes, 0, -1, dtype=np.int32),
        )  # fmt: skip
        for rank, minibatches in enumerate(accesses):
            per_epoch = len(minibatches) // epochs
            facts = RankFacts(rank, (per_epoch,) * epochs, "seeds")
            with TraceWriter(folder, manifest, facts) as writer:
                for step, ids in enumerate(minibatches):
                    row = TraceRow(
                        step // per_epoch, step, np.array(ids, np.int64), 5, 2, **(seconds or {})
                    )
                    writer.append(row)
        return Trace.open(folder)

    return make


@pytest.fixture
def replay(home: Home) -> Replay:
    """``replay(trace, "always", buffer=4, …)``: a run; other scenario fields as recorded."""
    count = iter(range(10_000))

    def run(
        trace: Trace,
        controller: str | Spec,
        *,
        engine: dict[str, Any] | None = None,
        **fields: Any,
    ) -> RunResult:
        built = ReplayEngine(trace, **(engine or {}))
        options = RunOptions(home, home.runs / f"replay-{next(count)}")
        return built.run(built.scenario.change(**fields), Spec.parse(controller), options)

    return run
