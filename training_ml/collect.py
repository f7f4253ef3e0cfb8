"""Runs every scenario of a suite, with every seed, under every exploring schedule.

State and decision must belong together: all runs are synchronous, and a replayed answer takes no
time unless its schedule says so. A run is made in a scratch directory and renamed when it is whole,
so that whatever ends the work, a finished run is never made again, and no half of one is kept.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rudder.engine import Engine, Progress, RunOptions
from rudder.errors import CollectionError, RudderError, ScenarioError, UsageError
from rudder.home import Home
from rudder.locks import held
from rudder.model.find import locate
from rudder.parallel import each
from rudder.partition import Partition
from rudder.plugins import PluginFile
from rudder.policies.base import Policy
from rudder.registries import DATASETS, ENGINES, PARTITIONERS, POLICIES
from rudder.replay.engine import ReplayEngine
from rudder.replay.sampled import (
    finished,
    partition_of,
    sample,
    sampled_folder,
    sampled_scenario,
)
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.steering.resolve import resolve
from rudder.suite import Suite, SuiteScenario
from rudder.trace import Trace
from rudder.tracking.provenance import code_version
from rudder.versions import installed

from .collection import (
    COLLECTION_FILE,
    RUNS,
    CollectedRun,
    Collection,
    EngineName,
    Request,
    begin,
)
from .schedules import spelled_out

SCRATCH, LOCK = "scratch", "lock"
JOBS = 2
_LIBRARIES = ("numpy", "numba", "pyarrow", "dgl", "torch")


@dataclass(frozen=True)
class Outcome:
    """What collecting came to.

    Attributes:
        collection: finished.
        made: runs that were made now; the others were there.
        traces: access traces that were made now.
    """

    collection: Collection
    made: int
    traces: int


@dataclass(frozen=True)
class _Pair:
    """A scenario with a seed: what is run, and its access trace."""

    item: SuiteScenario
    scenario: Scenario
    trace: Path

    def run(self, schedule: str, trace_id: str, home: Home) -> CollectedRun:
        """Its run under a schedule."""
        where = self.trace
        run = _run_id(self.item, self.scenario.seed, schedule, trace_id)
        return CollectedRun(
            id=run,
            scenario=self.item.name,
            split=self.item.split,
            seed=self.scenario.seed,
            schedule=schedule,
            scenario_digest=self.item.scenario.digest(),
            graph=self.scenario.graph,
            trace_id=trace_id,
            trace=str(where.relative_to(home.root) if where.is_relative_to(home.root) else where),
            run_dir=f"{RUNS}/{run}",
        )


@dataclass(frozen=True)
class _Sampling:
    scenario: Scenario
    partition: Partition
    folder: Path
    scratch: Path


@dataclass(frozen=True)
class _Replay:
    scenario: Scenario
    schedule: str
    trace: Path
    run_dir: Path
    scratch: Path
    home: Home
    plugins: tuple[PluginFile, ...]
    label: str


def collect(
    suite: Suite,
    home: Home,
    *,
    seeds: Sequence[int],
    schedules: Sequence[str],
    engine: EngineName = "replay",
    name: str = "",
    jobs: int = JOBS,
    plugins: Sequence[PluginFile] = (),
    progress: Progress = lambda phase, share: None,
) -> Outcome:
    """Make a collection, or go on with one that was begun for the same request.

    With ``replay`` every scenario and seed is sampled once, in this process's own way, and the
    trace replayed under every schedule. With ``distdgl`` a real run under the first schedule is
    recorded and belongs to the collection; its trace is replayed under the others.

    Args:
        seeds: of the accesses, the runs and the controllers.
        schedules: controller specs; see :data:`rudder_training_ml.schedules.DEFAULT`.
        name: of the collection; empty = that of the suite.
        jobs: replays at a time. What comes of them does not depend on it.

    Raises:
        UsageError: wrong names or values, told before anything is run; or a collection of this
            name that was made of something else.
        CollectionError: another process makes it at this moment.
        WorkerError: one of its processes was killed.
        RudderError: what a run raised, with the scenario's name.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise UsageError(f"seeds must be some numbers, each once, found {list(seeds)}")
    if jobs < 1:
        raise UsageError(f"jobs must be at least 1, found {jobs}")
    request = Request(suite.name, suite.digest(), engine, tuple(seeds), spelled_out(schedules))
    _check(suite, request, home)
    folder = home.collections / _checked_name(name or suite.name)
    begin(folder, request)
    busy = CollectionError(f"another process is making the collection {folder}; wait for its end")
    with held(folder / LOCK, busy):
        if (folder / COLLECTION_FILE).is_file():
            try:
                return Outcome(Collection.open(folder, home), 0, 0)
            except CollectionError:  # runs were removed: they are made again
                (folder / COLLECTION_FILE).unlink()
        return _Work(suite, home, request, folder, jobs, tuple(plugins), progress).go()


class _Work:
    """Makes what a collection lacks. The caller holds its lock."""

    def __init__(
        self,
        suite: Suite,
        home: Home,
        request: Request,
        folder: Path,
        jobs: int,
        plugins: tuple[PluginFile, ...],
        progress: Progress,
    ) -> None:
        self.suite, self.home, self.request, self.folder = suite, home, request, folder
        self.jobs, self.plugins, self.progress = jobs, plugins, progress
        self.scratch = folder / SCRATCH
        self.made = self.traces = 0

    def go(self) -> Outcome:
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        runs = self._recorded() if self.request.engine == "distdgl" else self._sampled()
        self._tidy(runs)
        self._replay(runs)
        libraries = {name: installed(name) or "" for name in _LIBRARIES}
        made_with = {"rudder": code_version(), "python": platform.python_version(), **libraries}
        collection = Collection(
            self.folder, self.home, self.folder.name, self.request, made_with,
            tuple(run for run, _ in runs),
        )  # fmt: skip
        shutil.rmtree(self.scratch)
        collection.save()
        return Outcome(collection, self.made, self.traces)

    def _scenarios(self) -> Iterator[tuple[SuiteScenario, Scenario]]:
        for item in self.suite:
            for seed in self.request.seeds:
                yield item, item.scenario.change(seed=seed, mode="sync")

    def _sampled(self) -> list[tuple[CollectedRun, Scenario]]:
        """Every run, over sampled traces, which are made where they are not there."""
        partitions: dict[tuple[str, int, str], Partition] = {}
        pairs: list[_Pair] = []
        missing: dict[Path, _Sampling] = {}
        for item, scenario in self._scenarios():
            key = (scenario.graph, scenario.parts, scenario.partition_method)
            if key not in partitions:
                partitions[key] = partition_of(scenario, self.home, self.progress)
            wanted = sampled_scenario(scenario)
            trace = sampled_folder(self.home, wanted, partitions[key])
            pairs.append(_Pair(item, scenario, trace))
            if not trace.is_dir():
                missing[trace] = _Sampling(
                    wanted, partitions[key], trace, self.scratch / trace.name
                )
        done = self._counted("sample", len(missing))
        each(_sample, list(missing.values()), self.jobs, self.plugins, done)
        self.traces = len(missing)
        return self._planned(pairs, self.request.schedules)

    def _planned(
        self, pairs: Sequence[_Pair], schedules: Sequence[str]
    ) -> list[tuple[CollectedRun, Scenario]]:
        ids = {pair.trace: "" for pair in pairs}
        for trace in ids:
            ids[trace] = Trace.open(trace).manifest.trace_id
        return [
            (pair.run(schedule, ids[pair.trace], self.home), pair.scenario)
            for pair in pairs
            for schedule in schedules
        ]

    def _recorded(self) -> list[tuple[CollectedRun, Scenario]]:
        """Every run, over traces of real runs, which are made where they are not there."""
        first, *others = self.request.schedules
        asked = list(self._scenarios())
        runs: list[tuple[CollectedRun, Scenario]] = []
        with ENGINES.build("distdgl") as engine:
            for number, (item, scenario) in enumerate(asked):
                # Answers in time are the machine's too: a trace is its run's, and named after it.
                name = _run_id(item, scenario.seed, first, "")
                trace = self.home.traces / f"{self.folder.name}-{name}.trace"
                run_dir = self.folder / RUNS / name
                if not (finished(trace) and (run_dir / "run.json").is_file()):
                    self._record(engine, scenario, first, trace, run_dir, number / len(asked))
                pair = _Pair(item, scenario, trace)
                [(real, _), *replayed] = self._planned([pair], (first, *others))
                runs.append((replace(real, id=name, run_dir=f"{RUNS}/{name}"), scenario))
                runs += replayed
        self.progress("record", 1.0)
        return runs

    def _record(
        self,
        engine: Engine,
        scenario: Scenario,
        schedule: str,
        trace: Path,
        run_dir: Path,
        share: float,
    ) -> None:
        self.progress("record", share)
        for old in (trace, run_dir):
            shutil.rmtree(old, ignore_errors=True)
        recorded, made = self.scratch / trace.name, self.scratch / run_dir.name
        options = RunOptions(self.home, made, self.plugins, self.progress, record=recorded)
        engine.run(scenario, locate(Spec.parse(schedule), self.home), options)
        recorded.rename(trace)
        made.rename(run_dir)
        self.made += 1
        self.traces += 1

    def _tidy(self, runs: Sequence[tuple[CollectedRun, Scenario]]) -> None:
        """Remove what no run of this collection will stand for."""
        known = {run.id for run, _ in runs}
        for path in (self.folder / RUNS).iterdir():
            if path.name not in known or not (path / "run.json").is_file():
                shutil.rmtree(path)

    def _replay(self, runs: Sequence[tuple[CollectedRun, Scenario]]) -> None:
        tasks = [
            _Replay(
                scenario, run.schedule, self.home.root / run.trace, self.folder / run.run_dir,
                self.scratch / run.id, self.home, self.plugins, f"{run.scenario}, seed {run.seed}",
            )
            for run, scenario in runs
            if not (self.folder / run.run_dir).is_dir()
        ]  # fmt: skip
        each(_replay, tasks, self.jobs, self.plugins, self._counted("replay", len(tasks)))
        self.made += len(tasks)

    def _counted(self, phase: str, total: int) -> _Count:
        return _Count(self.progress, phase, total)


class _Count:
    """Tells a phase's progress, one task at a time."""

    def __init__(self, progress: Progress, phase: str, total: int) -> None:
        self._progress, self._phase, self._total, self._done = progress, phase, total, 0
        if total:
            progress(phase, 0.0)

    def __call__(self) -> None:
        self._done += 1
        self._progress(self._phase, self._done / self._total)


def _sample(task: _Sampling) -> None:
    sample(task.scenario, task.partition, task.folder, task.scratch)


def _replay(task: _Replay) -> None:
    options = RunOptions(task.home, task.scratch, task.plugins)
    try:
        engine = ReplayEngine(task.trace)
        engine.run(task.scenario, locate(Spec.parse(task.schedule), task.home), options)
    except RudderError as error:
        raise type(error)(f"{task.label}, {task.schedule}: {error}") from error
    task.scratch.rename(task.run_dir)


def _check(suite: Suite, request: Request, home: Home) -> None:
    """Tell wrong use before anything is run.

    Raises:
        UsageError: names the scenario.
    """
    for item in suite:
        scenario = item.scenario
        try:
            DATASETS.check(scenario.graph)
            PARTITIONERS.check(scenario.partition_method)
            policy: Policy = POLICIES.build(scenario.policy)
            if policy.tags.self_deciding or scenario.buffer == 0:
                what = f"policy {scenario.policy!r}" if scenario.buffer else "an empty buffer"
                raise ScenarioError(f"{what} leaves nothing to decide, hence nothing to learn")
            for schedule in request.schedules:
                spec = locate(Spec.parse(schedule), home)
                if request.engine == "distdgl" and schedule == request.schedules[0]:
                    ENGINES.build("distdgl").check(scenario, spec)
                resolve(scenario, spec)
        except UsageError as error:
            raise type(error)(f"suite {suite.name!r}, scenario {item.name!r}: {error}") from error


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[\w][\w.=,-]*", name):
        raise UsageError(
            f"a collection cannot be named {name!r}: letters, digits and . _ - = , only, and a "
            "letter or digit first"
        )
    return name


def _run_id(item: SuiteScenario, seed: int, schedule: str, trace_id: str) -> str:
    """Readable, and equal for equal runs alone."""
    told = json.dumps([item.scenario.digest(), item.name, seed, schedule, trace_id])
    short = hashlib.sha256(told.encode()).hexdigest()[:8]
    return f"{_slug(item.name)}-seed={seed}-{_slug(schedule)}-{short}"


def _slug(text: str) -> str:
    return re.sub(r"[^\w.=,-]+", "_", text)[:72]
