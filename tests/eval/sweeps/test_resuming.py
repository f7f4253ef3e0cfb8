"""Killed at any moment, a sweep goes on where it was: the same table, the same runs."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rudder_eval.cells import read_cells
from rudder_eval.sweep import CELLS, note_begun

from rudder.home import Home
from rudder.plugins import PluginFile
from rudder.tracking import Tracker

from .conftest import BASE, SCENARIOS, run

_MAIN = "import sys; from rudder.cli.app import main; sys.exit(main())"
CONTROLLERS = "static,always,fixed:interval=3,agent,timing-oracle"


def command(home: Path, suite: str, controllers: str, *more: str) -> list[str]:
    return [
        sys.executable, "-I", "-c", _MAIN, "evaluate", suite, "-c", controllers, "--seeds", "2",
        "--home", str(home), "--json", *more,
    ]  # fmt: skip


def written(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def table(out: str) -> dict[str, Any]:
    told = json.loads(out)
    return {key: told[key] for key in ("headroom", "table", "cells", "control_cells", "failed")}


def finished(path: Path) -> dict[str, str]:
    return {c.cell: c.run_id for c in read_cells(path) if c.finished} if path.exists() else {}


def killed_three_times(arguments: list[str], cells: Path, most: int) -> tuple[dict[str, str], str]:
    """Kill a sweep within its next ``most`` cells, three times, then let it end.

    Returns the run ids by cell that had finished when it was last killed, and what it printed.
    """
    draw = random.Random()
    before: dict[str, str] = {}
    for _ in range(3):
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, start_new_session=True)
        target = written(cells) + draw.randint(1, most)
        while written(cells) < target and process.poll() is None:
            time.sleep(0.005)
        time.sleep(draw.random() / 5)
        os.kill(process.pid, signal.SIGKILL)  # what it started ends by itself
        process.wait()
        now = finished(cells)
        assert before.items() <= now.items()
        before = now
    return before, whole(arguments)


def whole(arguments: list[str]) -> str:
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_killed_three_times(home: Home, plugin: PluginFile, tmp_path: Path) -> None:
    suite = tmp_path / "tiny.toml"
    lines = [f"{k} = {json.dumps(v)}" for k, v in BASE.items()]
    lines = ["[base]", *lines]
    for name, fields in SCENARIOS.items():
        lines += [f"[scenarios.{name}]", *(f"{k} = {json.dumps(v)}" for k, v in fields.items())]
    suite.write_text("\n".join(lines))
    other = tmp_path / "other"
    shutil.copytree(home.root, other)
    more = ("--plugin", plugin.path)
    cells = home.sweeps / "tiny" / CELLS
    before, last = killed_three_times(
        command(home.root, str(suite), CONTROLLERS, *more), cells, most=25
    )
    assert before.items() <= finished(cells).items()
    unbroken = whole(command(other, str(suite), CONTROLLERS, *more))
    assert table(last) == table(unbroken)
    assert json.loads(last)["cells"] == 5 * 3 * 2
    assert set(finished(cells)) == set(finished(other / "sweeps" / "tiny" / CELLS))
    _check_mlflow(home, read_cells(cells))


@pytest.mark.full
@pytest.mark.llm
def test_classifiers_and_an_agent_killed_three_times(tmp_path: Path) -> None:
    """The controllers of the whole ``quick`` sweep, in two of its scenarios."""
    agent = "smollm2-135m:latency_s=2"
    controllers = f"none,static,always,fixed,threshold,xgboost,mlp,svm,tabnet,{agent},timing-oracle"
    more = ["--seeds-of", "smollm2-135m=1"]
    for name in ("held-coarse", "batch-size"):
        more += ["--scenarios", name]
    home, other = tmp_path / "home", tmp_path / "other"
    for root in (home, other):
        root.mkdir()
    unbroken = whole(command(other, "quick", controllers, *more))
    for kind in ("graphs", "partitions", "traces"):
        if (other / kind).is_dir():
            shutil.copytree(other / kind, home / kind)
    cells = home / "sweeps" / "quick" / CELLS
    before, last = killed_three_times(command(home, "quick", controllers, *more), cells, most=30)
    assert before.items() <= finished(cells).items()
    assert table(last) == table(unbroken)
    assert json.loads(last)["cells"] == 10 * 2 * 2 + 1 * 2 * 1
    assert json.loads(last)["failed"] == 0
    assert set(finished(cells)) == set(finished(other / "sweeps" / "quick" / CELLS))
    _check_mlflow(Home.resolve(home), read_cells(cells))


def _check_mlflow(home: Home, cells: list[Any]) -> None:
    with Tracker(home).store.session() as client:
        (experiment,) = client.search_experiments(filter_string="name = 'rudder'")
        runs = client.search_runs([experiment.experiment_id], max_results=1000)
    (parent,) = (r for r in runs if r.data.tags.get("kind") == "sweep")
    assert parent.info.status == "FINISHED"
    children = [r for r in runs if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert {r.info.status for r in children} == {"FINISHED"}
    told = sorted((r.data.tags["cell"], r.data.tags["rudder.run_id"]) for r in children)
    assert told == sorted((c.cell, c.run_id) for c in cells if c.family != "constant")


@pytest.mark.parametrize("lost", ["line", "line and MLflow"])
def test_a_run_that_had_ended_is_taken_up(home: Home, lost: str) -> None:
    """Killed after a run's end, before its line: nothing is run again, nothing tracked twice."""
    first = run(home, ["static"], "plain", seeds=1, track=True)
    path = first.sweep.folder / CELLS
    (own,) = (c for c in first.cells if c.controller == "static")
    kept = [line for line in path.read_text().splitlines() if own.cell not in line]
    path.write_text("\n".join(kept) + '\n{"cell": "cut sh')
    if lost == "line and MLflow":
        with Tracker(home).store.session() as client:
            client.delete_run(own.mlflow_run_id)
    again = run(home, ["static"], "plain", seeds=1, track=True)
    (taken,) = (c for c in again.cells if c.controller == "static")
    assert (taken.run_id, taken.run_dir) == (own.run_id, own.run_dir)
    assert taken.summary == own.summary
    assert (taken.mlflow_run_id == own.mlflow_run_id) == (lost == "line")


def test_a_run_that_was_cut_short_is_run_again(home: Home) -> None:
    first = run(home, ["static"], "plain", seeds=1)
    (own,) = (c for c in first.cells if c.controller == "static")
    path = first.sweep.folder / CELLS
    kept = [line for line in path.read_text().splitlines() if own.cell not in line]
    path.write_text("\n".join(kept) + "\n")
    (home.root / own.run_dir / "run.json").unlink()
    note_begun(first.sweep.folder, own.cell, "20260101-000000-nowhere")
    again = run(home, ["static"], "plain", seeds=1)
    (new,) = (c for c in again.cells if c.controller == "static")
    assert again.run_now == 1
    assert new.run_id != own.run_id
    assert new.value("fetched") == own.value("fetched")
