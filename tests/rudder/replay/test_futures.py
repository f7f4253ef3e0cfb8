"""Roll-outs that go on where earlier ones ended: the same as those that start anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rudder.decision import Decision
from rudder.replay.futures import Path, Paths
from rudder.result import RunResult
from rudder.trace import Trace

NODES = 400


def accesses(minibatches: int = 30) -> list[list[list[int]]]:
    """Two ranks; from the middle on the other half of the nodes."""
    rng = np.random.default_rng(7)
    likely = 1 / np.arange(1, NODES + 1)
    ranks = []
    for rank in range(2):
        drawn = (
            rng.choice(NODES, 40, replace=False, p=likely / likely.sum())
            for _ in range(minibatches)
        )
        ranks.append(
            [
                sorted((ids + NODES // 2 * (at > minibatches / 2)) % NODES + NODES * (1 - rank))
                for at, ids in enumerate(drawn)
            ]
        )
    return ranks


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("objective", ["communication", "seconds"])
@pytest.mark.parametrize("policy", ["score", "score-published", "massivegnn:interval=3"])
def test_paths_that_go_on_change_nothing(
    policy: str,
    objective: str,
    mode: str,
    make_trace: Callable[..., Trace],
    replay: Callable[..., RunResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = {"sample_s": 0.001, "compute_s": 0.01}
    trace = make_trace(accesses(), part_nodes=(NODES, NODES), epochs=2, seconds=seconds)
    oracle = f"timing-oracle:horizon=6,objective={objective}"
    went_on: list[bool] = []
    fetched = Path.fetched

    def counted(self: Path, at: int, *rest: Any) -> int:
        went_on.append(at < len(self.rows))
        return fetched(self, at, *rest)

    def told(result: RunResult) -> list[Any]:
        return [
            (one["rank"], one["asked_at"], one["decision"]["explanation"])
            for one in result.decisions
        ]

    fields = {"policy": policy, "mode": mode, "rate": 50.0, "buffer": 0.3}
    monkeypatch.setattr(Path, "fetched", counted)
    kept = replay(trace, oracle, **fields)
    assert sum(went_on) > len(went_on) / 4
    if objective == "communication":
        assert {one["decision"]["replace"] for one in kept.decisions} == {True, False}

    def forget(self: Paths, decision: Decision | None) -> None:
        self._open.clear()

    monkeypatch.setattr(Paths, "came", forget)
    went_on.clear()
    anew = replay(trace, oracle, **fields)
    assert not any(went_on)
    assert told(kept) == told(anew)
    for column in ("fetched", "replaced", "stall_s"):
        assert kept.minibatches[column].equals(anew.minibatches[column]), column
