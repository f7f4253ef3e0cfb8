"""What ``train``, ``demo`` and sweeps share, with an engine that starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rudder.engine import Engine, RunOptions
from rudder.errors import SpecError, UnknownNameError
from rudder.home import Home
from rudder.result import MINIBATCH_SCHEMA, SUMMARY_KEYS, RunResult
from rudder.running import run_tracked
from rudder.scenario import Scenario
from rudder.spec import Spec


class Recording(Engine):
    """Returns an empty result of what it was given."""

    name = "recording"

    def run(self, scenario: Scenario, controller: Spec, options: RunOptions) -> RunResult:
        summary = {**dict.fromkeys(SUMMARY_KEYS), "run_id": options.run_dir.name}
        empty = pa.table({n: [] for n in MINIBATCH_SCHEMA.names}, schema=MINIBATCH_SCHEMA)
        return RunResult(scenario, controller, empty, [], summary, {}, options.run_dir)


class Tracked:
    """Stands for a tracked run; keeps what it was opened with."""

    run_id = "in-mlflow"
    local_id, uri, start_ms = "1" * 32, None, 1_700_000_000_000

    def __init__(self) -> None:
        self.opened: list[tuple[Scenario, Spec]] = []

    def run(self, scenario: Scenario, controller: Spec, tags: Any, again: Any) -> Tracked:
        self.opened.append((scenario, controller))
        self.again = again
        return self

    def attach_logs(self, folder: Path) -> None:
        assert folder.name == "logs"

    def finish(self, result: RunResult) -> None:
        assert result.details["mlflow_run_id"] == self.run_id

    def __enter__(self) -> Tracked:
        return self

    def __exit__(self, *error: object) -> None:
        return None


def run(tracker: Any, controller: str, home: Home, **fields: Any) -> RunResult:
    scenario, spec = Scenario.make(**fields), Spec.parse(controller)
    return run_tracked(scenario, spec, home, tracker, lambda *_: None, engine=Recording())


def test_what_is_tracked_is_what_is_run(home: Home) -> None:
    tracker = Tracked()
    result = run(tracker, "massivegnn:interval=8", home)
    assert tracker.opened[0][0].policy == result.scenario.policy == "massivegnn:interval=8"
    run(tracker, "fixed", home)
    assert str(tracker.opened[1][1]) == "fixed:interval=16"


@pytest.mark.parametrize(
    ("controller", "fields", "error"),
    [
        ("alway", {}, UnknownNameError),
        ("fixed:interval=0", {}, SpecError),
        ("always", {"policy": "skore"}, UnknownNameError),
        ("always", {"policy": "massivegnn:interval=0"}, SpecError),
    ],
)
def test_wrong_use_is_not_tracked(
    home: Home, controller: str, fields: dict[str, Any], error: type[Exception]
) -> None:
    tracker = Tracked()
    with pytest.raises(error):
        run(tracker, controller, home, **fields)
    assert tracker.opened == []
