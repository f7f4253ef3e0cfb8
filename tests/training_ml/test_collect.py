"""``rudder collect``: every run once, state and decision together, whatever ends the work."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rudder_training_ml.collect import Outcome, collect
from rudder_training_ml.collection import CollectedRun, Collection
from rudder_training_ml.schedules import DEFAULT

from rudder.errors import (
    CapacityError,
    CollectionError,
    PathTakenError,
    ScenarioError,
    UnknownNameError,
    UsageError,
)
from rudder.home import Home
from rudder.plugins import load_file
from rudder.result import RunResult
from rudder.spec import Spec
from rudder.steering.rebuilt import rebuild
from rudder.suite import Suite
from rudder.trace import Trace

SUITE = """
summary = "small"

[base]
graph = "sbm:nodes=900,classes=3"
parts = 2
partition_method = "random"
batch_size = 40
epochs = 2

[scenarios.uniform]
each = { policy = ["score", "massivegnn"] }

[scenarios.drifting]
split = "id_val"
seed_order = "communities"
phases = 3
buffer = 0.5
"""
SCHEDULES = ("random:p=0.3", "always", "fixed:interval=3")
PLUGIN = """
from rudder import Controller, Decision
from rudder.registries import CONTROLLERS


class Odd(Controller):
    def _decide(self, observation):
        return Decision(replace=observation.minibatch % 2 == 0, p_replace=1.0)


CONTROLLERS.register("odd-steps", Odd, summary="replaces at every other minibatch")
"""
Collect = Callable[..., Outcome]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    path = tmp_path / "small.toml"
    path.write_text(SUITE)
    return Suite.read(path)


@pytest.fixture
def run(suite: Suite, home: Home) -> Collect:
    """``run(seeds=range(2), …)``: collect the small suite here, in this process."""

    def call(**options: Any) -> Outcome:
        given = {"suite": suite, "home": home, "jobs": 1, "seeds": range(3), **options}
        return collect(**{"schedules": SCHEDULES, **given})

    return call


def written(collection: Collection) -> dict[str, Any]:
    """All that runs leave, but when questions were asked and how long answers took."""
    found: dict[str, Any] = {}
    for run in collection.runs:
        result = RunResult.load(collection.run_dir(run))
        decisions = [
            {**d, "at": 0.0, "decision": {**d["decision"], "latency_s": 0.0}}
            for d in result.decisions
        ]
        found[run.id] = (repr(result.minibatches.to_pylist()), decisions, result.summary["fetched"])
    return found


def stamps(folder: Path) -> dict[str, int]:
    """When each finished run was written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("runs/*/run.json")}


def test_every_scenario_seed_and_schedule_is_run(run: Collect, suite: Suite, home: Home) -> None:
    outcome = run()
    collection = outcome.collection
    assert (outcome.made, outcome.traces) == (3 * 3 * 3, 2 * 3)
    assert Collection.open(None, home) == collection
    assert collection.request.suite_digest == suite.digest()
    asked = [
        (item.name, item.split, seed, schedule)
        for item in suite
        for seed in range(3)
        for schedule in SCHEDULES
    ]
    assert [(r.scenario, r.split, r.seed, r.schedule) for r in collection.runs] == asked
    assert len({r.id for r in collection.runs}) == len(asked)
    by_name = {item.name: item.scenario for item in suite}
    for made in collection.runs:
        result = RunResult.load(collection.run_dir(made))
        trace = Trace.open(collection.trace(made))
        assert result.scenario == by_name[made.scenario].change(seed=made.seed, mode="sync")
        assert result.controller == Spec.parse(made.schedule)
        assert made.scenario_digest == by_name[made.scenario].digest()
        assert made.trace_id == trace.manifest.trace_id == result.details["trace_id"]
        assert trace.manifest.scenario.seed == made.seed
        assert Path(made.trace).parts[0] == "traces"
    # Policies are compared over the same accesses; another order of seeds has its own.
    groups: dict[str, set[tuple[str, int]]] = {}
    for made in collection.runs:
        groups.setdefault(made.trace_id, set()).add((made.scenario.partition("/")[0], made.seed))
    assert sorted(len(group) for group in groups.values()) == [1] * 6
    assert not (collection.folder / "scratch").exists()


def test_state_and_decision_belong_together(run: Collect) -> None:
    collection = run(seeds=[4]).collection
    asked = Counter[str]()
    for made in collection.runs:
        trace = Trace.open(collection.trace(made))
        for question in rebuild(collection.run_dir(made)):
            # Asked after a minibatch, applied at the very next one.
            assert question.applied_at == question.observation.minibatch
            known = question.decision.p_replace
            assert known == (0.3 if made.schedule == "random:p=0.3" else None)
            asked[made.id] += 1
        assert asked[made.id] == 2 * (trace.common_length - 1)
    drawn = next(r for r in collection.runs if r.schedule == "random:p=0.3")
    replaced = [q.decision.replace for q in rebuild(collection.run_dir(drawn))]
    assert 0 < sum(replaced) < len(replaced)


def test_it_does_not_depend_on_how_many_run_at_a_time(
    run: Collect, home: Home, tmp_path: Path
) -> None:
    other = Home.resolve(tmp_path / "other")
    one = run(seeds=[0, 1]).collection
    two = run(seeds=[0, 1], jobs=2, home=other).collection
    assert two.runs == one.runs
    assert two.digest() == one.digest()
    assert written(two) == written(one)


def test_asked_again_nothing_is_made_again(run: Collect) -> None:
    first = run(seeds=[0])
    before, digest = stamps(first.collection.folder), first.collection.digest()
    again = run(seeds=[0])
    assert (again.made, again.traces) == (0, 0)
    assert again.collection == first.collection
    assert stamps(again.collection.folder) == before
    # Another name shares the traces, and nothing else.
    beside = run(seeds=[0], name="beside")
    assert (beside.made, beside.traces) == (9, 0)
    assert beside.collection.name == "beside"
    assert first.collection.digest() == digest


def test_what_is_lost_is_made_again_and_halves_are_removed(run: Collect) -> None:
    first = run(seeds=[0]).collection
    content, before = written(first), stamps(first.folder)
    lost, half = first.runs[2], first.runs[5]
    (first.run_dir(lost) / "run.json").unlink()  # its journals are still there
    for path in sorted(first.run_dir(half).rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    stray = first.folder / "runs" / "stray"
    stray.mkdir()
    (first.folder / "scratch").mkdir()
    (first.folder / "scratch" / lost.id).mkdir()
    with pytest.raises(CollectionError, match="lacks the run"):
        Collection.open(first.folder, first.home)
    again = run(seeds=[0])
    assert again.made == 2
    assert written(again.collection) == content
    kept = {name: stamp for name, stamp in before.items() if name not in (lost.id, half.id)}
    after = stamps(first.folder)
    assert {name: after[name] for name in kept} == kept
    assert not stray.exists()


def test_another_suite_under_the_same_name_is_refused(
    run: Collect, suite: Suite, tmp_path: Path
) -> None:
    made = run(seeds=[0]).collection
    path = tmp_path / "small.toml"
    path.write_text(SUITE.replace("epochs = 2", "epochs = 3"))
    before = stamps(made.folder)
    with pytest.raises(PathTakenError, match=r"suite_digest is .*--name"):
        run(seeds=[0], suite=Suite.read(path))
    with pytest.raises(PathTakenError, match="seeds is 0, asked for is 0, 1"):
        run(seeds=[0, 1])
    with pytest.raises(PathTakenError, match="suite_digest"):
        run(seeds=[0], suite=suite.select(["drifting"]))
    assert stamps(made.folder) == before


@pytest.mark.parametrize(
    ("change", "options", "error", "said"),
    [
        (("", ""), {"seeds": []}, UsageError, "seeds"),
        (("", ""), {"seeds": [1, 1]}, UsageError, "each once"),
        (("", ""), {"jobs": 0}, UsageError, "jobs"),
        (("", ""), {"name": "../x"}, UsageError, "cannot be named '../x'"),
        (("", ""), {"schedules": ["massivegnn"]}, UsageError, "fixes policy"),
        (("sbm:nodes=900,classes=3", "nonsense"), {}, UnknownNameError, "'uniform/policy=score'"),
        (('"random"', '"nonsense"'), {}, UnknownNameError, "nonsense"),
        (('"score", ', '"lru", '), {}, ScenarioError, "'uniform/policy=lru'.*nothing to decide"),
        (("buffer = 0.5", "buffer = 0"), {}, ScenarioError, "an empty buffer leaves nothing"),
    ],
)
def test_wrong_use_is_told_before_anything_is_run(
    run: Collect,
    home: Home,
    change: tuple[str, str],
    options: dict[str, Any],
    error: type[Exception],
    said: str,
) -> None:
    suite = Suite.of("small", _parsed(SUITE.replace(*change) if change[0] else SUITE))
    with pytest.raises(error, match=said):
        run(**{"suite": suite, **options})
    assert list(home.collections.iterdir()) == []
    assert list(home.traces.iterdir()) == []


def _parsed(text: str) -> dict[str, Any]:
    from rudder.toml import tomllib

    return tomllib.loads(text)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_fails_is_named_and_the_others_stay(run: Collect, home: Home, jobs: int) -> None:
    suite = Suite.of("small", _parsed(SUITE.replace("buffer = 0.5", "buffer = 5000")))
    with pytest.raises(CapacityError, match=r"drifting, seed 0, random.*5000"):
        run(suite=suite, seeds=[0], jobs=jobs)
    with pytest.raises(CollectionError, match="not finished"):
        Collection.open("small", home)
    assert set(stamps(home.collections / "small")) >= {
        path.name for path in (home.collections / "small" / "runs").iterdir()
    }


def test_one_process_at_a_time(run: Collect, home: Home) -> None:
    folder = run(seeds=[0]).collection.folder
    with (folder / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(CollectionError, match="another process"):
            run(seeds=[0])


def test_a_plug_in_may_explore(run: Collect, tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text(PLUGIN)
    plugin = load_file(path)
    collection = run(
        seeds=[0], schedules=["odd-steps", "always"], plugins=[plugin], jobs=2
    ).collection
    explored = next(r for r in collection.runs if r.schedule == "odd-steps")
    for question in rebuild(collection.run_dir(explored)):
        assert question.decision.replace == (question.observation.minibatch % 2 == 0)


@contextlib.contextmanager
def begun(home: Home, suite: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """``rudder collect`` in a process of its own."""
    code = "import sys; from rudder.cli.app import main; sys.exit(main())"
    arguments = ["collect", str(suite), "--home", str(home.root), *more]
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", code, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(met: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def test_killed_it_goes_on_where_it_was(home: Home, suite: Suite) -> None:
    folder = home.collections / "small"
    assert suite.path is not None
    with begun(home, suite.path, "--seeds", "8") as process:
        until(lambda: len(stamps(folder)) >= 5)
        workers = children(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert len(workers) >= 2
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 10)
    before = stamps(folder)
    assert not (folder / "collection.json").exists()
    outcome = collect(suite, home, seeds=range(8), schedules=DEFAULT)
    assert outcome.made == 3 * 8 * len(DEFAULT) - len(before)
    after = stamps(folder)
    assert {name: after[name] for name in before} == before
    assert {run.id for run in outcome.collection.runs} == set(after)
    assert not (folder / "scratch").exists()


def test_the_command(cli: Callable[..., Any], suite: Suite, tmp_path: Path) -> None:
    arguments = ("collect", "small.toml", "--seeds", "2", "--schedules", "always",
                 "--schedule", "random:p=0.5", "--scenarios", "uni*")  # fmt: skip
    ran = cli(*arguments, "--json", timeout=120)
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    home = Home.resolve(tmp_path / "rudder-data")
    assert told["collection"] == str(home.collections / "small")
    assert (told["runs"], told["runs_made_now"], told["traces"]) == (8, 8, 2)
    assert told["schedules"] == ["always", "random:p=0.5"]
    assert told["suite_digest"] == suite.select(["uni*"]).digest()
    assert [row["name"] for row in told["scenarios"]] == suite.names[:2]
    for row in told["scenarios"]:
        means = {
            schedule: sum(
                RunResult.load(home.collections / "small" / run.run_dir).summary["fetched"] / 2
                for run in Collection.open("small", home).runs
                if (run.scenario, run.schedule) == (row["name"], schedule)
            )
            for schedule in told["schedules"]
        }
        assert row["fetched"] == min(means.values()) == means[row["best"]]
        assert row["spread"] == pytest.approx(max(means.values()) / min(means.values()) - 1)
    assert "labels need 3 seeds" in ran.err
    again = cli(*arguments, timeout=120)
    assert again.code == 0
    assert "rudder label small" in again.err
    assert "uniform/policy=massivegnn" in again.out
    other = cli("collect", "small.toml", "--seeds", "3", "--json", timeout=120)
    assert other.code == 2
    assert json.loads(other.err)["error"] == "PathTakenError"
    unknown = cli("collect", "small.toml", "--scenarios", "nonsense")
    assert (unknown.code, unknown.out) == (2, "")
    assert "nothing named 'nonsense'" in unknown.err


@pytest.mark.cluster
def test_real_runs_are_recorded_and_replayed(run: Collect, suite: Suite, home: Home) -> None:
    options: dict[str, Any] = {
        "suite": suite.select(["uniform/policy=score"]), "seeds": [0], "engine": "distdgl",
    }  # fmt: skip
    outcome = run(**options)
    collection = outcome.collection
    assert (outcome.made, outcome.traces) == (3, 1)
    real, *replayed = collection.runs
    assert [r.schedule for r in collection.runs] == list(SCHEDULES)
    trace = Trace.open(collection.trace(real))
    assert trace.complete
    assert trace.manifest.recorder == "distdgl"
    assert {r.trace_id for r in collection.runs} == {trace.manifest.trace_id}
    assert len({r.id for r in collection.runs}) == 3
    measured = list(rebuild(collection.run_dir(real)))
    assert len(measured) == 2 * (trace.common_length - 1)
    for question in measured:
        assert question.applied_at == question.observation.minibatch
        assert question.decision.p_replace == 0.3
        assert question.observation.modelled_seconds is False
    for other in replayed:
        first = next(rebuild(collection.run_dir(other)))
        assert first.observation.modelled_seconds is True
    # The real run's decisions over its own trace give its own counts.
    assert fetched(collection, real) == replay_of(collection, real, home)
    before = stamps(collection.folder)
    assert run(**options).made == 0
    # Without its run a recorded trace is worth nothing: both are made anew.
    (collection.run_dir(real) / "run.json").unlink()
    again = run(**options)
    assert again.made == 3
    assert set(stamps(again.collection.folder)) == {r.id for r in again.collection.runs}
    assert again.collection.runs[0].id == real.id
    assert again.collection.runs[0].trace_id != real.trace_id
    assert len(before) == 3


def fetched(collection: Collection, run: CollectedRun) -> int:
    found: int = RunResult.load(collection.run_dir(run)).summary["fetched"]
    return found


def replay_of(collection: Collection, run: CollectedRun, home: Home) -> int:
    from rudder.engine import RunOptions
    from rudder.replay.engine import ReplayEngine

    engine = ReplayEngine(collection.trace(run))
    spec = Spec("recorded", {"run": str(collection.run_dir(run))})
    result = engine.run(engine.scenario, spec, RunOptions(home, home.runs / "again"))
    found: int = result.summary["fetched"]
    return found


def test_a_request_is_what_was_asked(run: Collect) -> None:
    made = run(seeds=[7, 3], schedules=["fixed"], engine="replay").collection
    assert dataclasses.asdict(made.request) == {
        "suite": "small", "suite_digest": made.request.suite_digest, "engine": "replay",
        "seeds": (7, 3), "schedules": ("fixed:interval=16",),
    }  # fmt: skip
