"""One tracked run: what ``train``, ``demo`` and sweeps share."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rudder.engine import Engine, Progress, RunOptions
from rudder.errors import ResultError
from rudder.home import Home
from rudder.model.find import locate
from rudder.plugins import PluginFile
from rudder.registries import ENGINES
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec

if TYPE_CHECKING:
    from rudder.tracking import Tracker

_TRACKED = "tracked.json"


def new_run_id() -> str:
    """Sorts by time, unique without coordination: ``20260131-235959-a1b2c3``."""
    return time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(3)


@dataclass(frozen=True)
class InMLflow:
    """Which run in MLflow a run's directory belongs to, kept there so that it can go on.

    Attributes:
        local_id: the tracker's name for it.
        uri: the store, without password; None = the default one.
        start_ms: when it began, ms since 1970 UTC.
    """

    local_id: str
    uri: str | None
    start_ms: int

    def save(self, run_dir: Path) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / _TRACKED).write_text(json.dumps(asdict(self)) + "\n")

    @classmethod
    def load(cls, run_dir: Path) -> InMLflow | None:
        """None: the run is not tracked.

        Raises:
            ResultError: the file is damaged.
        """
        path = run_dir / _TRACKED
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise ResultError(
                f"{path} does not say which run in MLflow this is: {error}; delete it to go on "
                "without tracking"
            ) from error


def run_tracked(
    scenario: Scenario,
    controller: Spec,
    home: Home,
    tracker: Tracker | None,
    progress: Progress,
    *,
    engine: str | Engine = "distdgl",
    plugins: tuple[PluginFile, ...] = (),
    tags: Mapping[str, str] | None = None,
    verify: bool = False,
    record: Path | None = None,
    checkpoint: bool = True,
    restarts: int = 0,
    resume: Path | None = None,
) -> RunResult:
    """Run a scenario under a controller; keep it on disk and, with a tracker, in MLflow.

    Args:
        engine: its name, or one that was built before and is used for several runs.
        record, checkpoint, restarts: as in :class:`rudder.engine.RunOptions`.
        resume: directory of a run of this scenario and controller that ended too early: it goes
            on there, and as the same run in MLflow.

    What is tracked is what is run, with the controller's defaults and the fields that it fixes.

    Raises:
        UsageError: wrong names or values; found before anything is tracked.
        RudderError: one class per cause. A failed run is tracked as FAILED, with its log.
    """
    run_dir = home.runs / new_run_id() if resume is None else resume
    run_id = run_dir.name
    options = RunOptions(
        home, run_dir, plugins, progress, verify, record, checkpoint, resume is not None, restarts
    )
    name = engine if isinstance(engine, str) else engine.name
    built: Engine = ENGINES.build(engine) if isinstance(engine, str) else engine
    scenario, controller = built.check(scenario, locate(controller, home))
    if tracker is None:
        return built.run(scenario, controller, options)
    all_tags = {"rudder.engine": name, "rudder.run_id": run_id, **(tags or {})}
    earlier = None if resume is None else InMLflow.load(resume)
    again = None if earlier is None else (earlier.local_id, earlier.start_ms)
    with tracker.run(scenario, controller, tags=all_tags, again=again) as tracked:
        InMLflow(tracked.local_id, tracked.uri, tracked.start_ms).save(run_dir)
        tracked.attach_logs(options.run_dir / "logs")
        result = built.run(scenario, controller, options)
        result = replace(result, details={**result.details, "mlflow_run_id": tracked.run_id})
        result.save(options.run_dir)
        tracked.finish(result)
    return result
