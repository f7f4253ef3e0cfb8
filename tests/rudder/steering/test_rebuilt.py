"""Observations of finished runs, rebuilt: the very ones that the controllers were shown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rudder import Observation
from rudder.engine import RunOptions
from rudder.errors import ResultError
from rudder.home import Home
from rudder.observation import feature_vector
from rudder.plugins import PluginFile, load_file
from rudder.registries import ENGINES, TRACES
from rudder.replay.engine import ReplayEngine
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.steering import Asked, rebuild

RECORDER = '''
import json
from pathlib import Path
from rudder import Controller, Decision
from rudder.observation import feature_vector
from rudder.registries import CONTROLLERS


class Recorder(Controller):
    """Writes down what it is shown; its answers come in all kinds."""

    def __init__(self, folder=""):
        self.folder = folder

    def _reset(self, task):
        self.path = Path(self.folder) / f"{task.rank}.jsonl"

    def _decide(self, observation):
        vector = [value.hex() for value in feature_vector(observation)]
        with self.path.open("a") as file:
            file.write(json.dumps({"seen": observation.to_dict(), "vector": vector}) + "\\n")
        turn = observation.minibatch % 7
        if turn == 3:
            raise RuntimeError("no answer this time")
        if turn == 5:
            return Decision(replace=True, share=2.0)
        return Decision(
            replace=turn in (1, 2), share=0.5 if turn == 2 else 1.0, p_replace=turn / 9,
            expected_hits="increase", in_support=turn == 1,
        )


CONTROLLERS.register("recorder-of-tests", Recorder, params={"folder": ""})
'''


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> PluginFile:
    path = tmp_path_factory.mktemp("plugin") / "recorder.py"
    path.write_text(RECORDER)
    return load_file(path)


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    """Where the recorder writes."""
    folder = tmp_path / "seen"
    folder.mkdir()
    return folder


Replay = Callable[..., Path]


@pytest.fixture
def replay(home: Home, plugin: PluginFile, seen: Path) -> Replay:
    """``replay({"latency_s": …}, mode=…)``: the run's directory."""

    def run(timing: dict[str, Any], **fields: Any) -> Path:
        engine = ReplayEngine(TRACES.build("debian-demo"))
        spec = Spec("recorder-of-tests", {"folder": str(seen), **timing})
        options = RunOptions(home, home.runs / "replayed", (plugin,))
        engine.run(engine.scenario.change(**fields), spec, options)
        return options.run_dir

    return run


def compare(run_dir: Path, folder: Path) -> list[Asked]:
    """Everything that was rebuilt, once it was found to be what was shown."""
    asked = list(rebuild(run_dir))
    shown = {path.stem: path.read_text().splitlines() for path in folder.iterdir()}
    assert {str(a.rank) for a in asked} == set(shown)
    for rank, lines in shown.items():
        own = [a for a in asked if str(a.rank) == rank]
        assert [a.observation.index for a in own] == list(range(len(own)))
        assert len(lines) - len(own) in (0, 1)  # the last question may have been withdrawn
        for a, line in zip(own, lines, strict=False):
            known = json.loads(line)
            assert a.observation == Observation.from_dict(known["seen"])
            assert [value.hex() for value in feature_vector(a.observation)] == known["vector"]
    return asked


@pytest.mark.parametrize(
    ("timing", "fields"),
    [
        pytest.param({}, {"mode": "sync"}, id="sync"),
        pytest.param(
            {"latency_s": 0.05},
            {"mode": "async", "rate": 100.0, "policy": "score-published", "buffer": 0.1},
            id="async",
        ),
        pytest.param(
            {"latency_s": 0.4, "deadline_s": 0.3}, {"mode": "async", "rate": 100.0}, id="timeouts"
        ),
    ],
)
def test_a_replays_observations_are_rebuilt(
    replay: Replay, seen: Path, timing: dict[str, Any], fields: dict[str, Any]
) -> None:
    run_dir = replay(timing, **fields)
    asked = compare(run_dir, seen)
    recorded = RunResult.load(run_dir).decisions
    assert [(a.rank, a.observation.index) for a in asked] == [
        (d["rank"], d["question"]) for d in recorded
    ]
    assert [(a.applied_at, a.effect) for a in asked] == [
        (d["applied_at"], d["effect"]) for d in recorded
    ]
    outcomes = {a.decision.outcome for a in asked}
    if "deadline_s" in timing:
        assert outcomes == {"timeout"}
        assert all(a.applied_at is None for a in asked)
    else:
        assert outcomes == {"valid", "invalid", "error"}
        assert all((a.applied_at is None) == (a.decision.outcome != "valid") for a in asked)
        assert max(len(a.observation.history) for a in asked) == 8
        assert any(p.window == 0 for a in asked for p in a.observation.history)
        assert any(p.replaced and p.reward for a in asked for p in a.observation.history)
    widest = max(a.observation.window.minibatches for a in asked)
    assert (widest == 1) == (fields["mode"] == "sync")


@pytest.mark.cluster
def test_a_real_runs_observations_are_rebuilt(home: Home, plugin: PluginFile, seen: Path) -> None:
    """Two trainers on two hosts, answers in a thread beside training."""
    scenario = Scenario.make(
        graph="sbm:nodes=6000", parts=2, epochs=3, batch_size=40, fan_out=(3, 5), rate=200.0,
        buffer=0.1, prefetch_depth=1,
    )  # fmt: skip
    options = RunOptions(home, home.runs / "real", (plugin,))
    with ENGINES.build("distdgl") as engine:
        engine.run(scenario, Spec("recorder-of-tests", {"folder": str(seen)}), options)
    asked = compare(options.run_dir, seen)
    assert not any(a.observation.modelled_seconds for a in asked)
    assert {a.rank for a in asked} == {0, 1}
    assert {a.decision.outcome for a in asked} == {"valid", "invalid", "error"}
    assert any(p.replaced and p.reward for a in asked for p in a.observation.history)


def test_ranks_come_in_order(replay: Replay) -> None:
    """By number, not by the names of their files."""
    run_dir = replay({}, mode="sync")
    journal = run_dir / "ranks" / "decisions-rank=1.jsonl"
    head, *lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(json.dumps({**json.loads(head), "rank": 10}) + "\n" + "".join(lines))
    journal.rename(journal.with_name("decisions-rank=10.jsonl"))
    with pytest.raises(ResultError, match=r"rank 10, of which .* has no minibatch"):
        list(rebuild(run_dir))
    table = pq.read_table(run_dir / "minibatches.parquet")
    rank = table.column("rank").to_numpy().copy()
    rank[rank == 1] = 10
    table = table.set_column(0, table.schema.field("rank"), pa.array(rank))
    pq.write_table(table, run_dir / "minibatches.parquet")
    ranks = [a.rank for a in rebuild(run_dir)]
    assert list(dict.fromkeys(ranks)) == [0, 2, 3, 10]


def test_what_is_missing_or_damaged_is_named(replay: Replay) -> None:
    run_dir = replay({}, mode="sync")
    journal = run_dir / "ranks" / "decisions-rank=0.jsonl"
    whole = journal.read_text()
    journal.write_text("".join(whole.splitlines(keepends=True)[1:]))
    with pytest.raises(ResultError, match=r"decisions-rank=0\.jsonl does not begin with the facts"):
        list(rebuild(run_dir))
    shutil.rmtree(run_dir / "ranks")
    with pytest.raises(ResultError, match="no journal of decisions"):
        list(rebuild(run_dir))
    (run_dir / "run.json").unlink()
    with pytest.raises(ResultError, match="no complete run"):
        list(rebuild(run_dir))
