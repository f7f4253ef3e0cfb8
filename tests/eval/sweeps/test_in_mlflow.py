"""Sweeps in a real MLflow store: one parent, a child per cell, and nothing lost on the way."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
from rudder_eval.contenders import contenders
from rudder_eval.requests import Request
from rudder_eval.runner import evaluate
from rudder_eval.sweep import Sweep
from rudder_eval.tracking import add_to_parent

from rudder.cli.app import main
from rudder.errors import RudderError, UsageError
from rudder.home import Home
from rudder.plugins import PluginFile
from rudder.result import RunResult
from rudder.spec import Spec
from rudder.suite import Suite
from rudder.tracking import Tracker
from rudder.tracking.sending import sync

from .conftest import BASE, run, tiny

KEYS = ("controller", "family", "split", "axis", "scenario", "seed", "engine", "sweep")


def search(home: Home, text: str = "") -> list[Any]:
    with Tracker(home).store.session() as client:
        found = client.search_experiments(filter_string="name = 'rudder'")
        ids = [experiment.experiment_id for experiment in found]
        return list(client.search_runs(ids, text, max_results=5000))


def test_a_parent_and_a_child_per_cell(home: Home, plugin: PluginFile) -> None:
    outcome = run(home, ["static", "agent"], plugins=[plugin], track=True)
    (parent,) = search(home, "tags.kind = 'sweep'")
    assert parent.info.run_id == outcome.parent
    assert parent.info.status == "FINISHED"
    assert parent.data.params == {"sweep": "tiny", "suite": "tiny", "engine": "replay"}
    assert parent.data.tags["controllers"] == "static, agent"
    children = search(home, f"tags.`mlflow.parentRunId` = '{outcome.parent}'")
    cells = {c.mlflow_run_id: c for c in outcome.cells if c.mlflow_run_id}
    assert {r.info.run_id for r in children} == set(cells)
    assert len(children) == 2 * 3 * 2 + 2 * 3 * 2  # cells and controls; none run for headroom
    for child in children:
        cell = cells[child.info.run_id]
        tags = child.data.tags
        assert all(tags[key] for key in KEYS)
        assert (tags["controller"], tags["seed"]) == (cell.controller, str(cell.seed))
        assert (tags["scenario"], tags["split"]) == (cell.scenario, cell.split)
        assert child.data.metrics["fetched"] == cell.value("fetched")
        assert child.data.metrics["headroom"] == cell.value("headroom")
    shifted = search(home, "tags.split = 'ood_batch_size'")
    assert {r.data.tags["scenario"] for r in shifted} == {"batch"}
    inside = search(home, "tags.distribution = 'ID'")
    assert {r.data.tags["split"] for r in inside} == {"id_val"}
    assert len(inside) + len(search(home, "tags.distribution = 'OOD'")) == len(children)


def test_figures_and_a_report_come_onto_the_parent(home: Home, tmp_path: Path) -> None:
    outcome = run(home, ["static"], "plain", seeds=1, track=True)
    report = tmp_path / "report"
    (report / "figures").mkdir(parents=True)
    (report / "report.html").write_text("<p>")
    (report / "figures" / "a.svg").write_text("<svg/>")
    metrics = {"gap": 0.25, "nothing": math.nan, "far": math.inf}
    sent = add_to_parent(home, outcome.sweep.folder, metrics=metrics, files={"report": report})
    assert sent is not None
    assert sent.run_id == outcome.parent
    (parent,) = search(home, "tags.kind = 'sweep'")
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["gap"] == 0.25
    assert parent.data.metrics["cells_finished"] == len(outcome.cells)
    assert "nothing" not in parent.data.metrics
    assert parent.data.tags["rudder.nonfinite.nothing"] == "nan"
    assert parent.data.tags["rudder.nonfinite.far"] == "inf"
    with Tracker(home).store.session() as client:
        names = {item.path for item in client.list_artifacts(outcome.parent)}
        assert names == {"sweep.json", "cells.jsonl", "report"}
        assert client.list_artifacts(outcome.parent, "report/figures")
    untracked = run(home, ["static"], "plain", seeds=1, name="untracked")
    assert add_to_parent(home, untracked.sweep.folder, metrics=metrics) is None


def test_a_report_is_on_the_run_of_its_sweep(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = run(home, ["static", "fixed:interval=3"], "plain", "large", seeds=1, track=True)
    given = ["report", "--home", str(home.root)]
    assert main(given) == 0
    assert f"are on the run {outcome.parent} in MLflow" in capsys.readouterr().err
    assert main([*given, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["mlflow_run_id"] == outcome.parent
    (parent,) = search(home, "tags.kind = 'sweep'")
    assert parent.info.status == "FINISHED"
    metrics = parent.data.metrics
    for one in told["ranking"]:
        name = one["controller"].replace("=", "_")
        assert metrics[f"communication/{name}"] == pytest.approx(one["mean"]["mean"])
        assert metrics[f"place_best/{name}"] == one["best"]
    for one in told["id_ood"]:
        name = one["controller"].replace("=", "_")
        if one["family"] == "constant":  # run for headroom alone
            assert not any(metric.endswith(f"/{name}") for metric in metrics)
            continue
        assert metrics[f"gap_regret_to_timing_oracle/{name}"] == pytest.approx(one["gap"]["mean"])
    assert {"headroom/plain", "headroom/large"} <= set(metrics)
    counted = [metrics[f"claims_{v}"] for v in ("supported", "not_supported", "not_testable")]
    assert sum(counted) == len(told["claims"])
    assert metrics["cells_finished"] == len(outcome.cells)  # what was there stays
    with Tracker(home).store.session() as client:
        names = {item.path for item in client.list_artifacts(outcome.parent, "report")}
        path = client.download_artifacts(outcome.parent, parent.data.tags["report"])
    assert names == {f"report/{n}" for n in ("report.html", "report.md", "report.json", "figures")}
    assert Path(path).read_bytes() == Path(told["files"]["html"]).read_bytes()
    assert main([*given, "--no-track", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mlflow_run_id"] is None


def test_a_store_that_is_none_is_told_at_once_and_changes_nothing(home: Home) -> None:
    before = run(home, ["static"], "plain", seeds=1)
    wrong = Request(tiny(), contenders(["always"], home, {}), (1000, 1001))
    with pytest.raises(UsageError, match="ftp"):
        evaluate(wrong, home, tracking_uri="ftp://nowhere")
    assert Sweep.open(before.sweep.folder).cells() == before.cells
    assert not list(home.outbox.iterdir())


def test_a_request_that_comes_to_nothing_leaves_the_one_before(home: Home) -> None:
    before = run(home, ["static"], "plain", seeds=1)
    other = Suite.of("tiny", {"base": BASE, "scenarios": {"parts": {"parts": 100_000}}})
    with pytest.raises(RudderError, match="fewer parts"):
        evaluate(Request(other, contenders(["always"], home, {}), (1000,)), home, track=False)
    assert Sweep.open(before.sweep.folder).head == before.sweep.head


def test_a_store_that_is_away_gets_all_of_it_later(home: Home) -> None:
    (home.root / "mlflow.db").rename(home.root / "away.db")
    (home.root / "mlflow.db").mkdir()  # nothing that SQLite could open
    outcome = run(home, ["static", "none"], "plain", seeds=1, track=True)
    assert outcome.parent is None
    assert all(c.finished for c in outcome.cells)
    add_to_parent(home, outcome.sweep.folder, metrics={"gap": 1.0})
    (home.root / "mlflow.db").rmdir()
    (home.root / "away.db").rename(home.root / "mlflow.db")
    assert all(row["sent"] for row in sync(home))
    (parent,) = search(home, "tags.kind = 'sweep'")
    assert (parent.info.status, parent.info.run_name) == ("FINISHED", "sweep tiny")
    assert parent.data.metrics["gap"] == 1.0
    children = search(home, f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    assert {r.data.tags["controller"] for r in children} == {"static", "none"}
    assert len(search(home)) == 3
    assert not [p for p in home.outbox.iterdir() if p.is_dir()]


def test_two_sweeps_at_once_on_one_store(home: Home) -> None:
    outcomes: dict[str, Any] = {}

    def work(name: str, controller: str) -> None:
        outcomes[name] = run(home, [controller], seeds=1, track=True, name=name)

    threads = [
        threading.Thread(target=work, args=one) for one in (("one", "static"), ("two", "none"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, controller in (("one", "static"), ("two", "none")):
        found = search(home, f"tags.sweep = '{name}' and tags.controller = '{controller}'")
        assert len(found) == 3
        parents = {r.data.tags["mlflow.parentRunId"] for r in found}
        assert parents == {outcomes[name].parent}
    assert len(search(home)) == 2 * (1 + 3)


def test_parameters_and_values_over_mlflows_limits(home: Home) -> None:
    outcome = run(home, ["static"], "plain", seeds=1)
    (own,) = (c for c in outcome.cells if c.controller == "static")
    result = RunResult.load(home.root / own.run_dir)
    many = {f"parameter_{i:03d}": i for i in range(250)}
    controller = Spec("static", {**many, "long": "x" * 20_000, "n" * 300: 1})
    summary = {**result.summary, "bad": math.nan, "worse": math.inf}
    result = RunResult(
        result.scenario, controller, result.minibatches, result.decisions, summary, result.details
    )
    tracker = Tracker(home)
    tags = {"controller": "y" * 9000}
    for _ in range(2):  # told twice, it is there once
        sent = tracker.log(
            "0" * 32, result.scenario, controller, start_ms=1, end_ms=2, result=result, tags=tags,
            brief=True,
        )  # fmt: skip
        assert sent.problem is None
    (found,) = search(home)
    own_params = {k: v for k, v in found.data.params.items() if k.startswith("controller.")}
    assert len(own_params) == 252
    assert all(own_params[f"controller.{name}"] == str(i) for name, i in many.items())
    assert len(own_params["controller.long"]) == 6000
    assert len(found.data.tags["controller"]) == 5000
    assert found.data.tags["rudder.nonfinite.bad"] == "nan"
    assert found.data.tags["rudder.nonfinite.worse"] == "inf"
    assert found.data.metrics["fetched"] == summary["fetched"]
    with tracker.store.session() as client:
        path = client.download_artifacts(found.info.run_id, "controller.json")
        assert Spec.from_json(Path(path).read_text()) == controller
        assert len(client.get_metric_history(found.info.run_id, "fetched")) == 1
        told = json.loads(
            Path(client.download_artifacts(found.info.run_id, "run.json")).read_text()
        )
    assert told["controller"]["params"]["long"] == "x" * 20_000
