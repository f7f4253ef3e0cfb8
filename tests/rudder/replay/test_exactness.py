"""A replay repeats a real run minibatch by minibatch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rudder.engine import RunOptions
from rudder.home import Home
from rudder.registries import ENGINES
from rudder.replay.engine import ReplayEngine
from rudder.replay.recorded import read_answers
from rudder.result import RunResult
from rudder.running import new_run_id
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.trace import Trace

pytestmark = pytest.mark.cluster

GRAPH = "sbm:nodes=6000"
COUNTS = ["rank", "epoch", "step", "seeds", "local", "remote_sampled", "hits", "misses", "replaced",
          "fetched", "stale_share", "occupancy", "bytes_features", "bytes_ids"]  # fmt: skip
Real = Callable[..., tuple[RunResult, Trace]]


def counts(result: RunResult) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = result.minibatches.select(COUNTS).to_pydict()
    return found


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """``real("fixed", mode="sync", …)``: a real run on two hosts, and the trace of it."""
    home = Home.resolve(tmp_path_factory.mktemp("exactness"))
    engine = ENGINES.build("distdgl")

    def run(controller: str, **fields: Any) -> tuple[RunResult, Trace]:
        # Small minibatches, so that they do not need all of the buffer each time.
        scenario = Scenario.make(
            graph=GRAPH, parts=2, epochs=2, rate=200.0, batch_size=40, fan_out=(3, 5), **fields
        )
        name = new_run_id()
        folder = home.traces / f"{name}.trace"
        options = RunOptions(home, home.runs / name, record=folder)
        result: RunResult = engine.run(scenario, Spec.parse(controller), options)
        return result, Trace.open(folder)

    with engine:
        yield run


@pytest.fixture
def replayed(home: Home) -> Callable[..., RunResult]:
    def run(trace: Trace, controller: Spec, **fields: Any) -> RunResult:
        engine = ReplayEngine(trace)
        options = RunOptions(home, home.runs / new_run_id())
        return engine.run(engine.scenario.change(**fields), controller, options)

    return run


@pytest.mark.parametrize(
    ("controller", "fields"),
    [
        ("threshold", {"buffer": 0.25, "trainers": 2}),
        ("random:p=0.3", {"buffer": 0.1, "policy": "score-published", "fill": "random"}),
        ("always", {"buffer": 0.25, "policy": "lookahead"}),
    ],
)
def test_a_sync_run_is_repeated_exactly(
    controller: str, fields: dict[str, Any], real: Real, replayed: Callable[..., RunResult]
) -> None:
    """For controllers that read no seconds."""
    result, trace = real(controller, mode="sync", **fields)
    assert sum(counts(result)["replaced"]) > 0
    assert counts(replayed(trace, Spec.parse(controller))) == counts(result)


def test_an_async_run_is_repeated_when_its_answers_are_fed_back(
    real: Real, replayed: Callable[..., RunResult]
) -> None:
    result, trace = real("random:p=0.5", mode="async", prefetch_depth=1)
    assert result.run_dir is not None
    again = replayed(trace, Spec("recorded", {"run": str(result.run_dir)}))
    assert counts(again) == counts(result)
    assert sum(counts(result)["replaced"]) > 0
    # A rank's own journal tells the same.
    for rank in range(2):
        journal: Path = result.run_dir / "ranks" / f"decisions-rank={rank}.jsonl"
        own = read_answers(journal, rank)
        assert own == read_answers(result.run_dir / "decisions.jsonl", rank)
        assert len(own) > 3
