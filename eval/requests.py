"""What to evaluate, and who is told how it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rudder.engine import Progress
from rudder.errors import UsageError
from rudder.registries import DATASETS, ENGINES, PARTITIONERS, POLICIES
from rudder.steering import resolve
from rudder.suite import Suite
from rudder.timing import Machine

from .cells import Cell
from .contenders import Contender
from .machines import bundled
from .sweep import EngineName, Planned

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
        machine: calibration of the replays' modelled clock, on which answers take their
            ``latency_s``.
    """

    suite: Suite
    contenders: Sequence[Contender]
    seeds: Sequence[int]
    engine: EngineName = "replay"
    name: str = ""
    controls: bool = True
    jobs: int = JOBS
    machine: Machine = field(default_factory=bundled)

    @property
    def sweep(self) -> str:
        if self.name:
            return self.name
        return self.suite.name if self.engine == "replay" else f"{self.suite.name}-{self.engine}"

    def check(self) -> None:
        """Tell wrong use before anything is run.

        Raises:
            UsageError: seeds or jobs that make no sense; names and values of a scenario, which it
                names.
        """
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UsageError(f"seeds must be some numbers, each once, found {list(self.seeds)}")
        if self.jobs < 1:
            raise UsageError(f"jobs must be at least 1, found {self.jobs}")
        engine = ENGINES.build("distdgl") if self.engine == "distdgl" else None
        for item in self.suite:
            try:
                DATASETS.check(item.scenario.graph)
                PARTITIONERS.check(item.scenario.partition_method)
                POLICIES.build(item.scenario.policy)
                for one in self.contenders:
                    if engine is not None:
                        engine.check(item.scenario, one.spec)
                    else:
                        resolve(item.scenario, one.spec)
            except UsageError as error:
                raise type(error)(
                    f"suite {self.suite.name!r}, scenario {item.name!r}: {error}"
                ) from error
