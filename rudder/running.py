"""One tracked run: what ``train``, ``demo`` and sweeps share."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rudder.engine import Engine, Progress, RunOptions
from rudder.home import Home
from rudder.model.find import locate
from rudder.plugins import PluginFile
from rudder.registries import ENGINES
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec

if TYPE_CHECKING:
    from rudder.tracking import Tracker


def new_run_id() -> str:
    """Sorts by time, unique without coordination: ``20260131-235959-a1b2c3``."""
    return time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(3)


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
) -> RunResult:
    """Run a scenario under a controller; keep it on disk and, with a tracker, in MLflow.

    Args:
        engine: its name, or one that was built before and is used for several runs.
        record: as in :class:`rudder.engine.RunOptions`.

    What is tracked is what is run, with the controller's defaults and the fields that it fixes.

    Raises:
        UsageError: wrong names or values; found before anything is tracked.
        RudderError: one class per cause. A failed run is tracked as FAILED, with its log.
    """
    run_id = new_run_id()
    options = RunOptions(home, home.runs / run_id, plugins, progress, verify, record)
    name = engine if isinstance(engine, str) else engine.name
    built: Engine = ENGINES.build(engine) if isinstance(engine, str) else engine
    scenario, controller = built.check(scenario, locate(controller, home))
    if tracker is None:
        return built.run(scenario, controller, options)
    all_tags = {"rudder.engine": name, "rudder.run_id": run_id, **(tags or {})}
    with tracker.run(scenario, controller, tags=all_tags) as tracked:
        tracked.attach_logs(options.run_dir / "logs")
        result = built.run(scenario, controller, options)
        result = replace(result, details={**result.details, "mlflow_run_id": tracked.run_id})
        result.save(options.run_dir)
        tracked.finish(result)
    return result
