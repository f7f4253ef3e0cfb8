"""Runs a sweep: controllers × scenarios × seeds, and goes on where it was ended.

``replay``: all cells of a trace one after another in one process, so that controllers are paired
on identical accesses and a language model is loaded once; several traces at a time. ``distdgl``:
one real run after the other, interleaved: scenario by scenario, seed by seed, controller by
controller, so that what changes on the machine meanwhile meets all controllers alike.
"""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from rudder.engine import Engine, Progress
from rudder.errors import UsageError, WorkerError
from rudder.home import Home
from rudder.parallel import Tell, each, exit_words, stream
from rudder.partition import Partition
from rudder.plugins import PluginFile
from rudder.registries import DATASETS, ENGINES, PARTITIONERS, POLICIES
from rudder.replay.engine import ReplayEngine
from rudder.replay.loaded import Loaded
from rudder.replay.sampled import partition_of, sample, sampled_folder, sampled_scenario
from rudder.running import new_run_id
from rudder.scenario import Scenario
from rudder.steering import resolve
from rudder.suite import Suite, SuiteScenario
from rudder.trace import Trace
from rudder.trace.sampling import sampled_trace_id
from rudder.tracking import TrackedRun, Tracker

from .cell_runs import CellRuns, Ended, Keeping, controls_of, failed, quiet_controllers
from .cells import Cell, Family
from .contenders import Contender, contender
from .headroom import CONSTANTS, ORACLE, Bounds
from .leaks import check_leaks
from .sweep import CONTROL_OF, SCRATCH, EngineName, Planned, Sweep, alone, cell_digest
from .tracking import counts, open_parent, parent_files

JOBS = 2
FIRST_SEED = 1000
"""Classifiers learn from the seeds 0, 1, 2, …: traces of these are none to be judged on."""
Begun = Callable[[Planned], None]
Done = Callable[[Cell, bool], None]


@dataclass(frozen=True)
class Watch:
    """Who is told how a sweep goes.

    Attributes:
        prepare: progress of what comes before cells.
        planned: called once, with all cells but controls, and those that have ended before.
        begun: a cell is being run.
        done: a cell has ended; True = now, False = before.
    """

    prepare: Progress = lambda phase, share: None
    planned: Callable[[Sequence[Planned], Mapping[str, Cell]], None] = lambda cells, known: None
    begun: Begun = lambda cell: None
    done: Done = lambda cell, now: None


@dataclass(frozen=True)
class Request:
    """What to evaluate.

    Attributes:
        suite: the scenarios, already chosen.
        contenders: the controllers.
        seeds: of accesses, initial model and controller alike.
        engine: ``replay`` or ``distdgl``.
        name: of the sweep.
        controls: run the controls of learned controllers and agents?
        jobs: traces at a time.
    """

    suite: Suite
    contenders: Sequence[Contender]
    seeds: Sequence[int]
    engine: EngineName = "replay"
    name: str = ""
    controls: bool = True
    jobs: int = JOBS

    @property
    def sweep(self) -> str:
        if self.name:
            return self.name
        return self.suite.name if self.engine == "replay" else f"{self.suite.name}-{self.engine}"


@dataclass(frozen=True)
class Outcome:
    """What a sweep came to.

    Attributes:
        sweep: on disk.
        cells: all of the request, those run for headroom and the controls among them.
        run_now: how many of them were run now.
        parent: id of the sweep's run in MLflow.
    """

    sweep: Sweep
    cells: list[Cell]
    run_now: int
    parent: str | None


def evaluate(
    request: Request,
    home: Home,
    *,
    track: bool = True,
    tracking_uri: str | None = None,
    plugins: Sequence[PluginFile] = (),
    watch: Watch | None = None,
) -> Outcome:
    """Run what a request asks for and has not ended before.

    Raises:
        UsageError: wrong names or values, or a suite that asks for what a model has seen; told
            before anything is run.
        SweepError: another process works at this sweep.
        RudderError: a graph that cannot be read or cut. What a cell raises fails that cell alone.
    """
    watch = Watch() if watch is None else watch
    if not request.seeds or len(set(request.seeds)) < len(request.seeds):
        raise UsageError(f"seeds must be some numbers, each once, found {list(request.seeds)}")
    if request.jobs < 1:
        raise UsageError(f"jobs must be at least 1, found {request.jobs}")
    _check(request)
    check_leaks(request.suite, request.contenders, request.seeds)
    tracker = Tracker(home, tracking_uri) if track else None
    with alone(home, request.sweep):
        return _Work(request, home, tracker, tracking_uri, tuple(plugins), watch).go()


def _check(request: Request) -> None:
    """Tell wrong use before anything is run.

    Raises:
        UsageError: names the scenario.
    """
    engine = ENGINES.build("distdgl") if request.engine == "distdgl" else None
    for item in request.suite:
        try:
            DATASETS.check(item.scenario.graph)
            PARTITIONERS.check(item.scenario.partition_method)
            POLICIES.build(item.scenario.policy)
            for one in request.contenders:
                if engine is not None:
                    engine.check(item.scenario, one.spec)
                else:
                    resolve(item.scenario, one.spec)
        except UsageError as error:
            raise type(error)(
                f"suite {request.suite.name!r}, scenario {item.name!r}: {error}"
            ) from error


@dataclass
class _Place:
    """A scenario under a seed.

    Attributes:
        trace: its sampled access trace.
        constants: schedules run for headroom, and the oracle last; [] where nothing is decided.
        contenders: the cells asked for that are none of these.
    """

    trace: Path
    constants: list[Planned] = field(default_factory=list)
    contenders: list[Planned] = field(default_factory=list)


@dataclass(frozen=True)
class _Group:
    """All cells of one trace: the task of one process.

    Attributes:
        known: cells that have ended, by digest.
        begun: ids of the runs that were begun for the others.
        given_up: cells that killed the process which ran them, and how.
    """

    trace: Path
    places: tuple[_Place, ...]
    keeping: Keeping
    known: Mapping[str, Cell]
    begun: Mapping[str, Sequence[str]]
    controls: bool
    given_up: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Sampling:
    scenario: Scenario
    partition: Partition
    folder: Path
    scratch: Path


class _Work:
    """Makes what a sweep lacks. The caller holds its lock."""

    def __init__(
        self,
        request: Request,
        home: Home,
        tracker: Tracker | None,
        uri: str | None,
        plugins: tuple[PluginFile, ...],
        watch: Watch,
    ) -> None:
        self.request, self.home, self.tracker, self.uri = request, home, tracker, uri
        self.plugins, self.watch = plugins, watch
        self.now = 0
        self.sweep = Sweep.begin(
            home, request.sweep, request.suite, request.engine, request.seeds,
            request.contenders, request.controls,
        )  # fmt: skip
        self.keeping = Keeping(home, self.sweep.folder, plugins, uri)
        self.schedules = [
            *(replace(contender(text, home), name=name) for name, text in CONSTANTS.items()),
            contender(ORACLE, home),
        ]

    def go(self) -> Outcome:
        scratch = self.sweep.folder / SCRATCH
        shutil.rmtree(scratch, ignore_errors=True)
        places = self._planned(scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        cells = [cell for place in places for cell in (*place.contenders, *place.constants)]
        self.sweep.save(cells=[cell.cell for cell in cells])
        known = {digest: cell for digest, cell in self.sweep.all_cells().items() if cell.finished}
        self.watch.planned(cells, known)
        with nullcontext() if self.tracker is None else self._parent(self.tracker) as tracked:
            if tracked is not None:
                self.keeping = replace(self.keeping, parent=tracked.local_id)
            self._groups(places, known)
            if self.request.engine == "distdgl":
                self._real(places)
            found = self.sweep.cells()
            if tracked is not None:
                tracked.finish(metrics=counts(found), files=parent_files(self.sweep))
                self.sweep.save(mlflow={**self.sweep.head["mlflow"], "run_id": tracked.run_id})
        return Outcome(self.sweep, found, self.now, None if tracked is None else tracked.run_id)

    def _parent(self, tracker: Tracker) -> TrackedRun:
        tracker.catch_up()
        return open_parent(tracker, self.sweep)

    def _planned(self, scratch: Path) -> list[_Place]:
        """Every cell but controls, over sampled traces, which are made where they are not there."""
        scratch.mkdir()
        partitions: dict[tuple[str, int, str], Partition] = {}
        missing: dict[Path, _Sampling] = {}
        traces: dict[Path, str] = {}
        places: list[_Place] = []
        for item in self.request.suite:
            for number, seed in enumerate(self.request.seeds):
                scenario = item.scenario.change(seed=seed)
                key = (scenario.graph, scenario.parts, scenario.partition_method)
                if key not in partitions:
                    partitions[key] = partition_of(scenario, self.home, self.watch.prepare)
                wanted = sampled_scenario(scenario)
                trace = sampled_folder(self.home, wanted, partitions[key])
                if not trace.is_dir():
                    missing[trace] = _Sampling(wanted, partitions[key], trace, scratch / trace.name)
                traces[trace] = sampled_trace_id(wanted, partitions[key])
                places.append(self._place(item, scenario, number, trace, traces[trace]))
        check_leaks(
            self.request.suite, self.request.contenders, self.request.seeds, traces.values()
        )
        self._sample(list(missing.values()))
        return places

    def _place(
        self, item: SuiteScenario, scenario: Scenario, number: int, trace: Path, trace_id: str
    ) -> _Place:
        """The cells of a scenario under the seed of that number."""
        place = _Place(trace)
        if _decides(scenario):
            place.constants = [
                _plan(item, scenario, one, trace_id, hidden=True) for one in self.schedules
            ]
        at = {cell.cell: i for i, cell in enumerate(place.constants)}
        for one in self.request.contenders:
            if one.seeds is not None and number >= one.seeds:
                continue
            cell = _plan(item, scenario, one, trace_id, self.request.engine)
            if cell.cell in at:  # a schedule of headroom's that is asked for by name
                place.constants[at[cell.cell]] = cell
            else:
                place.contenders.append(cell)
        return place

    def _sample(self, missing: Sequence[_Sampling]) -> None:
        made = 0

        def done() -> None:
            nonlocal made
            made += 1
            self.watch.prepare("sample", made / len(missing))

        if missing:
            self.watch.prepare("sample", 0.0)
        each(_sample, missing, self.request.jobs, self.plugins, done)

    def _groups(self, places: Sequence[_Place], known: Mapping[str, Cell]) -> None:
        """Everything that is replayed, trace by trace."""
        by_trace: dict[Path, list[_Place]] = defaultdict(list)
        for place in places:
            if self.request.engine == "distdgl":
                place = replace(place, contenders=[])
            by_trace[place.trace].append(place)
        begun = self.sweep.begun()
        groups = [
            _Group(
                trace, tuple(of_trace), self.keeping, _known(of_trace, known),
                {cell: ids for cell, ids in begun.items() if cell not in known},
                self.request.controls,
            )
            for trace, of_trace in by_trace.items()
        ]  # fmt: skip
        running: dict[Path, Planned] = {}
        ended: dict[Path, dict[str, Cell]] = defaultdict(dict)

        def heard(group: _Group, event: Planned | tuple[Cell, bool]) -> None:
            if isinstance(event, Planned):
                running[group.trace] = event
                self.watch.begun(event)
                return
            cell, now = event
            ended[group.trace][cell.cell] = cell
            running.pop(group.trace, None)
            self.now += now
            self.watch.done(cell, now)

        def lost(group: _Group, code: int | None) -> _Group:
            """The process died: the cell that it was at has failed, the others go on."""
            at = running.pop(group.trace, None)
            if at is None or at.cell in group.given_up:
                raise WorkerError(
                    f"a process died ({exit_words(code)}) between two cells, perhaps for want of "
                    "memory. What is finished stays: run the same command again, with --jobs 1 "
                    "if memory is short"
                )
            why = f"WorkerError: the process that ran it died ({exit_words(code)})"
            return replace(
                group,
                known={**group.known, **ended[group.trace]},
                begun=self.sweep.begun(),
                given_up={**group.given_up, at.cell: why},
            )

        stream(_replay, groups, self.request.jobs, self.plugins, heard, lost)

    def _real(self, places: Sequence[_Place]) -> None:
        """Real runs, one after the other; hosts stay up between those that need the same."""
        runs = CellRuns(self.keeping, self.sweep.begun(), self.watch.prepare)
        known = {digest: cell for digest, cell in self.sweep.all_cells().items() if cell.finished}
        quiet_controllers()
        with ENGINES.build("distdgl") as engine:
            for place in places:
                bounds = _bounds(place, known)
                for cell in place.contenders:
                    line = self._real_cell(cell, engine, runs, known, bounds)
                    if not self.request.controls:
                        continue
                    for control in controls_of(cell, line, self.home, ""):
                        self._real_cell(control, engine, runs, known, bounds)

    def _real_cell(
        self,
        cell: Planned,
        engine: Engine,
        runs: CellRuns,
        known: Mapping[str, Cell],
        bounds: Bounds,
    ) -> Cell:
        if cell.cell in known:
            line = runs.keep_again(cell, known[cell.cell])
            self.watch.done(line, False)
            return line
        self.watch.begun(cell)
        line = runs.keep(runs.run(cell, engine), bounds)
        self.now += 1
        self.watch.done(line, True)
        return line


def _sample(task: _Sampling) -> None:
    sample(task.scenario, task.partition, task.folder, task.scratch)


_loaded = Loaded()
"""Of this process: a language model stays from trace to trace."""


def _replay(group: _Group, tell: Tell) -> None:
    """All cells of a trace."""
    quiet_controllers()
    _Replays(group, tell).go()


class _Replays:
    """The cells of one group, in this process."""

    def __init__(self, group: _Group, tell: Tell) -> None:
        self.group, self.tell = group, tell
        self.runs = CellRuns(group.keeping, group.begun)
        trace = Trace.open(group.trace)
        self.trace_id = trace.manifest.trace_id
        self.engine = ReplayEngine(trace, loaded=_loaded)
        self.silent = ReplayEngine(trace, record_decisions=False, loaded=_loaded)

    def go(self) -> None:
        bounds = [self._headroom(place) for place in self.group.places]
        for cell, of_place in self._contenders(bounds):
            line = self._cell(cell, of_place)
            if self.group.controls:
                for control in controls_of(cell, line, self.group.keeping.home, self.trace_id):
                    self._cell(control, of_place)

    def _contenders(self, bounds: Sequence[Bounds]) -> Iterator[tuple[Planned, Bounds]]:
        """Controller by controller, so that one that shares weights loads them once."""
        order: dict[str, list[tuple[Planned, Bounds]]] = defaultdict(list)
        for place, of_place in zip(self.group.places, bounds, strict=True):
            for cell in place.contenders:
                order[cell.controller].append((cell, of_place))
        for of_controller in order.values():
            yield from of_controller

    def _headroom(self, place: _Place) -> Bounds:
        """Run the constant schedules and the oracle; their lines come once all are known."""
        ended: dict[str, Ended] = {}
        rows: dict[str, int | None] = {}
        for cell in place.constants:
            found = self.group.known.get(cell.cell)
            if found is None:
                self.tell(cell)
                engine = self.engine if cell.tracked else self.silent
                ended[cell.cell] = self._run(cell, engine)
                rows[cell.cell] = ended[cell.cell].fetched
            else:
                rows[cell.cell] = found.summary.get("fetched")
        bounds = _bounds_of(place, rows)
        for cell in place.constants:
            if cell.cell in ended:
                self.tell((self.runs.keep(ended[cell.cell], bounds), True))
            else:
                line = self.runs.keep_again(cell, self.group.known[cell.cell])
                self.tell((line, False))
        return bounds

    def _cell(self, cell: Planned, bounds: Bounds) -> Cell:
        found = self.group.known.get(cell.cell)
        if found is not None:
            line = self.runs.keep_again(cell, found)
            self.tell((line, False))
            return line
        self.tell(cell)
        line = self.runs.keep(self._run(cell, self.engine), bounds)
        self.tell((line, True))
        return line

    def _run(self, cell: Planned, engine: Engine) -> Ended:
        if cell.cell in self.group.given_up:
            run_id = new_run_id()
            reason = self.group.given_up[cell.cell]
            run_dir = self.group.keeping.home.runs / run_id
            now = int(time.time() * 1000)
            return failed(cell, run_id, run_dir, (now, now), reason, reason)
        return self.runs.run(cell, engine)


def _plan(
    item: SuiteScenario,
    scenario: Scenario,
    one: Contender,
    trace_id: str,
    engine: EngineName = "replay",
    *,
    hidden: bool = False,
) -> Planned:
    """The cell of a controller in a scenario with its seed."""
    of_trace = trace_id if engine == "replay" else ""  # else the accesses are not fixed
    digest = cell_digest(scenario, one.spec, engine, of_trace, one.content)
    family: Family = "constant" if hidden and one.family != "oracle" else one.family
    return Planned(
        digest, item.name, item.split, item.axis, one.name, family, engine, scenario, one.spec,
        tracked=not hidden,
    )  # fmt: skip


def _decides(scenario: Scenario) -> bool:
    """Is timing a controller's here at all?"""
    return bool(scenario.buffer) and not POLICIES.build(scenario.policy).tags.self_deciding


def _bounds(place: _Place, known: Mapping[str, Cell]) -> Bounds:
    return _bounds_of(
        place,
        {c.cell: known[c.cell].summary.get("fetched") for c in place.constants if c.cell in known},
    )


def _bounds_of(place: _Place, rows: Mapping[str, int | None]) -> Bounds:
    """From rows fetched, by cell."""
    if not place.constants:
        return Bounds()
    *constants, oracle = place.constants
    named = zip(CONSTANTS, constants, strict=True)
    return Bounds.of({name: rows.get(cell.cell) for name, cell in named}, rows.get(oracle.cell))


def _known(places: Sequence[_Place], known: Mapping[str, Cell]) -> dict[str, Cell]:
    """What of all cells that have ended belongs to some places, controls among it."""
    own = {cell.cell for place in places for cell in (*place.contenders, *place.constants)}
    return {
        digest: cell
        for digest, cell in known.items()
        if digest in own or cell.summary.get(CONTROL_OF) in own
    }
