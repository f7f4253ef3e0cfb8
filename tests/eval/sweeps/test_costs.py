"""What an answer costs: time on the replays' clock, and memory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from rudder_eval import costs
from rudder_eval.cells import Cell
from rudder_eval.machines import bundled
from rudder_eval.runner import Outcome

from rudder.cli.app import main
from rudder.home import Home
from rudder.plugins import PluginFile
from rudder.spec import Spec

from .conftest import run


def of(outcome: Outcome, controller: str) -> Cell:
    (found,) = (c for c in outcome.cells if c.controller == controller)
    return found


def test_an_answer_takes_time_on_a_calibrated_clock(home: Home, plugin: PluginFile) -> None:
    one = "agent:latency_s=0.08"
    outcome = run(home, ["agent", one], "plain", seeds=1, plugins=[plugin], controls=False)
    at_once, later = of(outcome, "agent"), of(outcome, one)
    minibatches = at_once.value("asked") or 0
    assert 0 < (later.value("asked") or 0) < minibatches / 3
    assert later.value("latency_p50_s") == 0.08
    seconds = at_once.value("epoch_seconds") or 0
    assert seconds > bundled().train_fixed_s

    slow = dataclasses.replace(bundled(), train_fixed_s=10 * bundled().train_fixed_s)
    slower = run(
        home, ["agent", one], "plain", seeds=1, plugins=[plugin], controls=False, machine=slow
    )
    assert slower.run_now == len(slower.cells)  # another clock, other cells
    assert (of(slower, one).value("asked") or 0) > (later.value("asked") or 0)
    assert (of(slower, "agent").value("epoch_seconds") or 0) > seconds
    for cell in slower.cells:  # at no latency the rows are the same
        if cell.controller != one:
            assert cell.value("fetched") == of(outcome, cell.controller).value("fetched")


def test_memory_is_what_a_controller_adds_and_is_measured_once(
    home: Home, plugin: PluginFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    heavy = "agent:ballast_mb=120"
    asked = ["agent", heavy, "static", "timing-oracle"]
    outcome = run(home, asked, "plain", seeds=1, plugins=[plugin])
    light, full = (of(outcome, name).value("memory_mb") for name in ("agent", heavy))
    assert light is not None
    assert full is not None
    assert 100 < full - light < 140
    assert 0 < (of(outcome, "agent").value("answer_s") or 0) < 1
    assert of(outcome, "static").value("answer_s") == 0
    assert of(outcome, "static").value("memory_mb") == 0
    rest = [c for c in outcome.cells if c.family in ("oracle", "control", "constant")]
    assert rest
    assert all(c.summary["memory_mb"] is None and c.summary["answer_s"] is None for c in rest)

    def never(spec: Spec, plugins: tuple[PluginFile, ...]) -> costs.Costs:
        raise AssertionError(f"{spec} is known")

    monkeypatch.setattr(costs, "costs_of", never)
    more = run(home, asked, "plain", seeds=2, plugins=[plugin])
    assert {c.value("memory_mb") for c in more.cells if c.controller == heavy} == {full}


def test_memory_of_one_that_cannot_answer_is_not_known(plugin: PluginFile) -> None:
    unknown = costs.costs_of(Spec("no-start", {"batch_size": 200}), (plugin,))
    assert unknown == costs.Costs(None, None)
    found = costs.costs_of(Spec("dying"), (plugin,))  # it dies of odd seeds alone
    assert found.memory_mb is not None
    assert found.answer_s is not None


def test_what_does_not_answer_is_asked_once_and_measured_when_it_does(
    home: Home, plugin: PluginFile, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ready = tmp_path / "server"
    name = f"waiting:ready={ready}"
    first = run(home, [name], "plain", seeds=1, plugins=[plugin])
    assert not of(first, name).finished
    assert not first.sweep.head["costs"]
    assert capfd.readouterr().err.count("Traceback") == 1
    ready.touch()
    again = run(home, [name], "plain", seeds=1, plugins=[plugin])
    assert of(again, name).finished
    assert of(again, name).value("answer_s") is not None


def test_a_calibration_that_is_none_is_wrong_use(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["evaluate", "quick", "-c", "static", "--home", str(home.root), "--time"]
    assert main([*arguments, str(tmp_path / "nowhere.json")]) == 2
    assert "nowhere.json" in capsys.readouterr().err
