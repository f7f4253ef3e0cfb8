"""``rudder train`` as a user meets it: what it prints, where it tracks, how it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mlflow
import pytest

from rudder.home import Home
from rudder.result import SUMMARY_KEYS


@pytest.mark.cluster
def test_a_tracked_run_from_the_command_line(cli: Any, tmp_path: Path) -> None:
    ran = cli("train", "sbm:nodes=3000", "--parts", "2", "--epochs", "2", "--controller",
              "fixed:interval=4", "--json", timeout=200)  # fmt: skip
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)  # JSON alone on stdout
    assert set(SUMMARY_KEYS) <= set(told)
    assert told["controller"] == "fixed:interval=4"
    home = Home.resolve(tmp_path / "rudder-data")
    assert (home.runs / told["run_id"] / "run.json").exists()
    client = mlflow.MlflowClient(home.mlflow_uri)
    experiments = [e.experiment_id for e in client.search_experiments()]
    (run,) = client.search_runs(experiments, f"tags.`rudder.run_id` = '{told['run_id']}'")
    assert run.info.status == "FINISHED"
    assert run.data.metrics["fetched"] == told["fetched"]
    assert run.data.params["parts"] == "2"


@pytest.mark.cluster
def test_a_run_that_is_terminated_while_its_graph_is_read_ends_as_killed(tmp_path: Path) -> None:
    """Before any supervisor runs: nothing may stay RUNNING in the store."""
    plugin, reading = tmp_path / "slow.py", tmp_path / "reading"
    plugin.write_text(
        "import pathlib, time\n"
        "from rudder.registries import DATASETS\n\n\n"
        "def slow():\n"
        f"    pathlib.Path({str(reading)!r}).touch()\n"
        "    time.sleep(60)\n\n\n"
        'DATASETS.register("slow", slow)\n'
    )
    home = Home.resolve(tmp_path / "home")
    main = "import sys; from rudder.cli.app import main; sys.exit(main())"
    arguments = ["train", "slow", "--plugin", str(plugin), "--home", str(home.root)]
    process = subprocess.Popen([sys.executable, "-I", "-c", main, *arguments], env=dict(os.environ))
    deadline = time.monotonic() + 60
    while not reading.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    client = mlflow.MlflowClient(home.mlflow_uri)
    (run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert run.info.status == "KILLED"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["debain"], 2, "did you mean 'debian'"),
        (["debian", "--controller", "alway"], 2, "did you mean 'always'"),
        (["debian", "--controller", "fixed:intervall=2"], 2, "did you mean 'interval'"),
        (["debian", "--controller", "fixed:interval=0"], 2, "interval"),
        (["debian", "--policy", "skore"], 2, "did you mean 'score'"),
        (["debian", "--rate", "-5"], 2, "rate"),
        (["debian", "--buffer", "1.5"], 2, "share"),
        (["debian", "--fan-out", "10"], 2, "fan_out"),
        (["debian", "--parts", "0"], 2, "parts"),
        (["rmat:nodes=64", "--parts", "65"], 2, "64 nodes"),
        (["sbm:nodes=500", "--parts", "2", "--buffer", "500"], 2, "remote nodes"),
        (["custom:edges=/nowhere/edges.csv", "--parts", "2"], 2, "/nowhere/edges.csv"),
        (["debian", "--plugin", "/nowhere/mine.py"], 2, "/nowhere/mine.py"),
        ([], 2, "rudder train GRAPH"),
        (["--resume", "20200101-000000-abcdef"], 2, "there is no run"),
        (["--resume", "/nowhere/run"], 2, "no run of the data directory"),
        (["debian", "--resume", "it", "--epochs", "3"], 2, "leave out GRAPH, --epochs"),
        (["--resume", "it", "-c", "always", "--verify"], 2, "leave out --controller, --verify"),
        (["debian", "--restarts", "2", "--record", "t"], 2, "leave out --record"),
        (["debian", "--restarts", "2", "--no-checkpoint"], 2, "leave out --no-checkpoint"),
    ],
)
def test_wrong_input_is_one_clear_error(
    cli: Any, arguments: list[str], code: int, says: str
) -> None:
    ran = cli("train", *arguments, "--no-track", timeout=120)
    assert ran.code == code, ran.err
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""
