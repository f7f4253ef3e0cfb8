"""Plans a sweep: its cells, place by place, and the traces that they are run on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rudder.home import Home
from rudder.parallel import each
from rudder.partition import Partition
from rudder.plugins import PluginFile
from rudder.registries import POLICIES
from rudder.replay.sampled import partition_of, sample, sampled_folder, sampled_scenario
from rudder.scenario import Scenario
from rudder.suite import SuiteScenario
from rudder.trace.sampling import sampled_trace_id

from .cells import Cell, Family
from .contenders import Contender, contender
from .headroom import CONSTANTS, ORACLE, Bounds
from .leaks import check_leaks
from .machines import digest_of
from .requests import Request, Watch
from .sweep import EngineName, Planned, cell_digest


@dataclass
class Place:
    """A scenario under a seed.

    Attributes:
        trace: its sampled access trace.
        constants: schedules run for headroom, and the oracle last; [] where nothing is decided.
        contenders: the cells asked for that are none of these.
    """

    trace: Path
    constants: list[Planned] = field(default_factory=list)
    contenders: list[Planned] = field(default_factory=list)

    @property
    def cells(self) -> list[Planned]:
        return [*self.contenders, *self.constants]

    def bounds(self, rows: Mapping[str, int | None]) -> Bounds:
        """From rows fetched, by cell."""
        if not self.constants:
            return Bounds()
        *constants, oracle = self.constants
        named = zip(CONSTANTS, constants, strict=True)
        return Bounds.of({name: rows.get(cell.cell) for name, cell in named}, rows.get(oracle.cell))

    def known_bounds(self, known: Mapping[str, Cell]) -> Bounds:
        """From the cells that have ended, by digest."""
        ended = (cell.cell for cell in self.constants if cell.cell in known)
        return self.bounds({digest: known[digest].summary.get("fetched") for digest in ended})


@dataclass(frozen=True)
class _Sampling:
    scenario: Scenario
    partition: Partition
    folder: Path
    scratch: Path


class Planner:
    """Every cell but controls, over sampled traces, which are made where they are not there.

    Args:
        scratch: a folder for traces that are being made; removed before and after.
    """

    def __init__(
        self,
        request: Request,
        home: Home,
        scratch: Path,
        plugins: Sequence[PluginFile],
        watch: Watch,
    ) -> None:
        self._request, self._home, self._scratch = request, home, scratch
        self._plugins, self._watch = plugins, watch
        self._clock = digest_of(request.machine)
        self._schedules = [
            *(replace(contender(text, home), name=name) for name, text in CONSTANTS.items()),
            contender(ORACLE, home),
        ]

    def places(self) -> list[Place]:
        """In the order of the suite, seed by seed.

        Raises:
            LeakError: a model has seen one of the traces.
            RudderError: a graph that cannot be read or cut.
        """
        request = self._request
        shutil.rmtree(self._scratch, ignore_errors=True)  # of a process that was killed
        partitions: dict[tuple[str, int, str], Partition] = {}
        missing: dict[Path, _Sampling] = {}
        traces: dict[Path, str] = {}
        places: list[Place] = []
        for item in request.suite:
            for number, seed in enumerate(request.seeds):
                scenario = item.scenario.change(seed=seed)
                key = (scenario.graph, scenario.parts, scenario.partition_method)
                if key not in partitions:
                    partitions[key] = partition_of(scenario, self._home, self._watch.prepare)
                wanted = sampled_scenario(scenario)
                trace = sampled_folder(self._home, wanted, partitions[key])
                if not trace.is_dir():
                    missing[trace] = _Sampling(
                        wanted, partitions[key], trace, self._scratch / trace.name
                    )
                traces[trace] = sampled_trace_id(wanted, partitions[key])
                places.append(self._place(item, scenario, number, trace, traces[trace]))
        check_leaks(request.suite, request.contenders, request.seeds, traces.values())
        self._sample(list(missing.values()))
        return places

    def _place(
        self, item: SuiteScenario, scenario: Scenario, number: int, trace: Path, trace_id: str
    ) -> Place:
        """The cells of a scenario under the seed of that number."""
        place = Place(trace)
        if _decides(scenario):
            place.constants = [
                self._plan(item, scenario, one, trace_id, hidden=True) for one in self._schedules
            ]
        at = {cell.cell: i for i, cell in enumerate(place.constants)}
        for one in self._request.contenders:
            if one.seeds is not None and number >= one.seeds:
                continue
            cell = self._plan(item, scenario, one, trace_id, self._request.engine)
            if cell.cell in at:  # a schedule of headroom's that is asked for by name
                place.constants[at[cell.cell]] = cell
            else:
                place.contenders.append(cell)
        return place

    def _plan(
        self,
        item: SuiteScenario,
        scenario: Scenario,
        one: Contender,
        trace_id: str,
        engine: EngineName = "replay",
        *,
        hidden: bool = False,
    ) -> Planned:
        """The cell of a controller in a scenario with its seed."""
        # Else neither the accesses are fixed nor the clock is modelled.
        of_replay = (trace_id, self._clock) if engine == "replay" else ("", "")
        digest = cell_digest(scenario, one.spec, engine, *of_replay, one.content)
        family: Family = "constant" if hidden and one.family != "oracle" else one.family
        return Planned(
            digest, item.name, item.split, item.axis, one.name, family, engine, scenario,
            one.spec, tracked=not hidden,
        )  # fmt: skip

    def _sample(self, missing: Sequence[_Sampling]) -> None:
        made = 0

        def done() -> None:
            nonlocal made
            made += 1
            self._watch.prepare("sample", made / len(missing))

        if not missing:
            return
        self._scratch.mkdir()
        self._watch.prepare("sample", 0.0)
        each(_sample, missing, self._request.jobs, self._plugins, done)
        shutil.rmtree(self._scratch, ignore_errors=True)


def _sample(task: _Sampling) -> None:
    sample(task.scenario, task.partition, task.folder, task.scratch)


def _decides(scenario: Scenario) -> bool:
    """Is timing a controller's here at all?"""
    return bool(scenario.buffer) and not POLICIES.build(scenario.policy).tags.self_deciding
