"""The one door to both engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from rudder.home import Home
from rudder.plugins import PluginFile
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec

Progress = Callable[[str, float], None]
"""Called with a phase ("partition", "start", "train", "test", "replay"), its share done 0..1."""


@dataclass(frozen=True)
class RunOptions:
    """How to run, without effect on what is computed.

    Attributes:
        home: where partitions are cached.
        run_dir: where tables, decisions and logs go; it is made. Its name is the run's id.
        plugins: plug-in files that every trainer loads, checked by hash.
        progress: told about progress.
        verify: test mode: compare every served feature row with the stored one.
        record: directory to record an access trace into (``distdgl`` only); None = do not.
        checkpoint: keep a checkpoint at the end of every epoch (``distdgl`` only).
        resume: go on from the last checkpoint in ``run_dir`` (``distdgl`` only).
        restarts: after a process, a host or a link was lost, go on from the last checkpoint, so
            often at most (``distdgl`` only).
    """

    home: Home
    run_dir: Path
    plugins: tuple[PluginFile, ...] = ()
    progress: Progress = field(default=lambda phase, share: None)
    verify: bool = False
    record: Path | None = None
    checkpoint: bool = True
    resume: bool = False
    restarts: int = 0


class Engine(ABC):
    """Runs a scenario under a controller.

    As a context manager an engine may keep between runs what is slow to start (hosts); on exit
    nothing of it is left. Outside of one, each run starts and ends what it needs.

    Attributes:
        name: the name in the registry.
    """

    name: ClassVar[str]

    def check(self, scenario: Scenario, controller: Spec) -> tuple[Scenario, Spec]:
        """What :meth:`run` would run: the controller's defaults and fixed fields spelled out.

        Cheap, and starts nothing, so that wrong use is told before a run is tracked.

        Raises:
            UsageError: an unknown name, or a parameter that is unknown or out of range.
        """
        from rudder.registries import POLICIES
        from rudder.steering import resolve

        resolved = resolve(scenario, controller)
        POLICIES.build(resolved.scenario.policy)
        return resolved.scenario, resolved.spec

    @abstractmethod
    def run(self, scenario: Scenario, controller: Spec, options: RunOptions) -> RunResult:
        """Run to the end and return what happened.

        Raises:
            RudderError: one class per cause; nothing of the run is left behind.
        """

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 - an engine may have nothing to end
        """End what was kept between runs."""
