"""``rudder demo``: what it runs, what it leaves out, and the whole of it for real."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rudder import tracking
from rudder.cli import demo as demo_module
from rudder.cli.app import main
from rudder.cluster.doctor import Check
from rudder.controller import Controller
from rudder.engine import Engine, RunOptions
from rudder.home import Home
from rudder.registries import COMMANDS, CONTROLLERS, ENGINES
from rudder.result import MINIBATCH_SCHEMA, SUMMARY_KEYS, RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec


class Counting(Engine):
    """Starts nothing; each run takes a second per epoch more than the one before."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def run(self, scenario: Scenario, controller: Spec, options: RunOptions) -> RunResult:
        self.asked.append((controller.name, scenario.prefetch_depth))
        summary = {
            **dict.fromkeys(SUMMARY_KEYS), "run_id": options.run_dir.name, "fetched": 100,
            "epoch_seconds": float(len(self.asked)), "bytes_fetched": 4e6,
        }  # fmt: skip
        empty = pa.table({n: [] for n in MINIBATCH_SCHEMA.names}, schema=MINIBATCH_SCHEMA)
        return RunResult(scenario, controller, empty, [], summary, {}, options.run_dir)


class Untracked:
    """Stands for the tracker and for a run of it: MLflow has tests of its own."""

    run_id = "in-mlflow"
    local_id, uri, start_ms = "here", None, 0

    def __init__(self, *_: Any) -> None:
        pass

    def run(self, *_: Any, **__: Any) -> Untracked:
        return self

    def attach_logs(self, folder: Path) -> None:
        pass

    def finish(self, result: RunResult) -> None:
        pass

    def __enter__(self) -> Untracked:
        return self

    def __exit__(self, *error: object) -> None:
        return None


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Counting:
    found = Counting()
    monkeypatch.setattr(ENGINES, "build", lambda name: found)
    monkeypatch.setattr(tracking, "Tracker", Untracked)
    return found


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """What the commands that the demo calls are given; none of them does anything."""
    found: dict[str, dict[str, Any]] = {}
    real: Callable[[str], Any] = COMMANDS.target

    def target(name: str) -> Any:
        if name not in ("evaluate", "report"):
            return real(name)

        def command(**given: Any) -> None:
            found[name] = given
            print(json.dumps({"did": name}))

        return command

    monkeypatch.setattr(COMMANDS, "target", target)
    return found


def test_it_trains_evaluates_and_reports(
    engine: Counting,
    called: dict[str, dict[str, Any]],
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(demo_module, "unavailable", lambda name: None)
    assert main(["demo", "--graph", "sbm", "--home", str(home.root), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    names = ["static", "always", "threshold", "xgboost", "smollm2-135m"]
    assert engine.asked == [("none", 0), *((name, 2) for name in names)]
    assert [row["controller"] for row in told["runs"]] == ["plain DistDGL", *names]
    assert told["runs"][2]["epoch_time_vs_plain"] == 3
    assert told["left_out"] == {}
    assert (told["sweep"], told["report"]) == ({"did": "evaluate"}, {"did": "report"})
    asked = called["evaluate"]
    assert asked["controllers"] == ["none", *names[:-1], "smollm2-135m:latency_s=0.4"]
    assert asked["seeds_of"] == ["smollm2-135m=1"]
    assert called["report"]["sweep"] == asked["name"] == "demo"


def test_what_cannot_run_here_is_left_out_and_said(
    engine: Counting,
    called: dict[str, dict[str, Any]],
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Lacking(Controller):
        def needs(self) -> list[Check]:
            advice = "pip install 'rudder-gnn[llm]'"
            return [
                Check("weights", True, "here"),
                Check("transformers", False, "not installed", advice),
            ]

    monkeypatch.setattr(CONTROLLERS, "build", lambda name: Lacking())
    assert main(["demo", "--graph", "sbm", "--home", str(home.root)]) == 0
    assert [name for name, _ in engine.asked] == ["none", "static", "always", "threshold"]
    assert called["evaluate"]["controllers"] == ["none", "static", "always", "threshold"]
    assert called["evaluate"]["seeds_of"] is None
    said = capsys.readouterr().err
    for name in ("xgboost", "smollm2-135m"):
        assert f"{name} is left out: transformers: not installed: pip install" in said


def test_the_scenarios_are_of_the_suite_in_distribution_and_out_of_it() -> None:
    from rudder.suite import find_suite

    chosen = find_suite(demo_module.SUITE).select(demo_module.SCENARIOS, [])
    splits = [item.split for item in chosen]
    assert len(splits) == len(demo_module.SCENARIOS)
    assert [split for split in splits if not split.startswith("ood_")] == ["id_val"]
    assert len(set(splits)) == len(splits)


@pytest.mark.cluster
@pytest.mark.llm
@pytest.mark.full
def test_the_whole_of_it(cli: Any, tmp_path: Path) -> None:
    done = cli("demo", "--json", "--home", tmp_path / "data", timeout=1800)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["left_out"] == {}
    assert len(told["runs"]) == 6
    assert all(row["communication_vs_plain"] < 0.9 for row in told["runs"][1:])
    assert told["sweep"]["failed"] == 0
    assert Path(told["report"]["files"]["html"]).is_file()
