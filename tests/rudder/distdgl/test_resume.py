"""Runs that are killed and go on: they come to what an unbroken run comes to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest

from rudder.home import Home
from rudder.result import RunResult

from ...conftest import Traces
from .conftest import Run

pytestmark = pytest.mark.cluster

GRAPH = "sbm:nodes=3000"
EPOCHS = 3
BATCH = 40
"""Small, so that an epoch lasts long enough to be broken."""
_MAIN = "import sys; from rudder.cli.app import main; sys.exit(main())"
TRAINED = ("rank", "epoch", "step", "seeds", "local", "remote_sampled", "bytes_sampling",
           "bytes_gradients", "bytes_evaluation", "loss")  # fmt: skip
"""Columns that say what was trained: the same whatever was decided when."""
FETCHED = ("hits", "misses", "replaced", "fetched", "stale_share", "occupancy", "bytes_features",
           "bytes_ids")  # fmt: skip
"""What follows from decisions: the same where these do not depend on speed, as in sync mode. The
other columns are seconds."""


class Command:
    """``rudder train`` in a process of its own."""

    def __init__(self, home: Path, traces: Traces, *arguments: str) -> None:
        self.home, self.traces = home, traces
        self._earlier = {path.name for path in home.glob("runs/*")}
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", _MAIN, "train", *arguments, "--json", "--home", str(home)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, traces.VARIABLE: traces.mark},
        )

    def ends(self, code: int = 0, seconds: float = 240.0) -> tuple[dict[str, Any], str]:
        """What it tells: the summary, or the error; and its whole stderr."""
        out, err = self.process.communicate(timeout=seconds)
        assert self.process.returncode == code, (self.process.returncode, out, err)
        told = out if code == 0 else err.strip().splitlines()[-1]
        return json.loads(told), err

    def kill_trainer(self, rank: int, epoch: int) -> str:
        """Once every rank has the checkpoint of an epoch and the next has begun; the run's id."""
        run_dir: Path | None = None
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            run_dir = next(
                (p for p in self.home.glob("runs/*") if p.name not in self._earlier), None
            )
            if run_dir is not None and all(
                (run_dir / f"checkpoints/epoch={epoch}/rank={r}.npz").exists() for r in (0, 1)
            ):
                break
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.01)
        assert run_dir is not None
        journal = f"{run_dir.name}/ranks/decisions-rank={rank}.jsonl"
        asked = (run_dir / f"ranks/decisions-rank={rank}.jsonl").read_text().count("\n")
        while (run_dir / f"ranks/decisions-rank={rank}.jsonl").read_text().count("\n") < asked + 3:
            time.sleep(0.005)  # mid-epoch: what was decided since must not be there twice
        for pid in self.traces.pids():
            if any(name.endswith(journal) for name in _open_files(pid)):
                os.kill(pid, signal.SIGKILL)
                return run_dir.name
        raise AssertionError(f"no process has {journal} open")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def _open_files(pid: int) -> list[str]:
    try:
        return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


Train = Callable[..., Command]


@pytest.fixture
def train(engine_home: Home, traces: Traces) -> Iterator[Train]:
    started: list[Command] = []

    def start(*arguments: str) -> Command:
        started.append(Command(engine_home.root, traces, *arguments))
        return started[-1]

    yield start
    for command in started:
        command.close()


def options(controller: str, *more: str) -> list[str]:
    return [GRAPH, "--parts", "2", "--epochs", str(EPOCHS), "--batch-size", str(BATCH),
            "--controller", controller, *more]  # fmt: skip


def assert_same(broken: RunResult, whole: RunResult) -> None:
    """Bit by bit: what was trained, and in sync mode what was decided, fetched and counted too."""
    same_decisions = whole.scenario.mode == "sync"
    for name in (*TRAINED, *(FETCHED if same_decisions else ())):
        ours, theirs = broken.minibatches.column(name), whole.minibatches.column(name)
        assert ours.to_pylist() == theirs.to_pylist(), name
    assert broken.summary["test_metric"] == whole.summary["test_metric"]
    assert metrics(broken) == metrics(whole)
    questions = [(d["rank"], d["question"]) for d in broken.decisions]
    assert len(questions) == len(set(questions))
    if same_decisions:
        assert decisions(broken) == decisions(whole)
        assert counts(broken) == counts(whole)


def metrics(result: RunResult) -> list[list[Any]]:
    return [[epoch.get("val_metric") for epoch in rank] for rank in result.details["epochs"]]


def decisions(result: RunResult) -> list[Any]:
    return [
        (d["rank"], d["question"], d["applied_at"], d["decision"]["replace"], d["effect"])
        for d in result.decisions
    ]


def counts(result: RunResult) -> dict[str, Any]:
    return {k: v for k, v in result.details["steering"].items() if "latency" not in k}


@pytest.fixture(scope="module")
def unbroken(run: Run) -> RunResult:
    """On hosts that are kept: made before a test looks for what it has left."""
    return run("fixed:interval=7", graph=GRAPH, epochs=EPOCHS, batch_size=BATCH, mode="sync")


def test_a_killed_trainer_a_restart_and_the_same_result(
    unbroken: RunResult, train: Train, engine_home: Home
) -> None:
    """``fixed`` counts minibatches itself; in sync mode its answers do not depend on speed."""
    whole = unbroken
    assert "restarts" not in whole.summary
    assert whole.run_dir is not None
    assert not (whole.run_dir / "checkpoints").exists()
    assert [each["kept"] for each in whole.details["checkpoints"]] == [EPOCHS, EPOCHS]

    command = train(*options("fixed:interval=7", "--mode", "sync", "--no-track", "--restarts", "1"))
    run_id = command.kill_trainer(rank=1, epoch=1)
    told, err = command.ends()
    assert "trainer 1 on host1" in err
    assert "started again" in err
    assert told["run_id"] == run_id
    assert told["restarts"] == 1
    broken = RunResult.load(engine_home.runs / run_id)
    assert_same(broken, whole)
    (start,) = broken.details["later_starts"]
    assert start["epoch"] == 1
    assert "SIGKILL" in start["after"]
    assert [each["failed"] for each in broken.details["checkpoints"]] == [0, 0]
    logs = engine_home.runs / run_id / "logs"
    assert (logs / "trainer-1.log").exists()
    assert (logs / "start=2" / "trainer-1.log").exists()


@pytest.mark.full
@pytest.mark.parametrize(
    ("controller", "more"),
    [
        ("always", []),
        ("fixed:interval=5", ["--prefetch-depth", "0", "--mode", "sync", "--eval-every", "1"]),
        ("always", ["--policy", "lookahead:window=8", "--fan-out-at", "2=5,5", "--mode", "sync"]),
        ("threshold", ["--mode", "sync", "--policy", "massivegnn", "--fill", "empty"]),
        ("random", ["--mode", "sync", "--trainers", "2", "--batch-size-at", "2=15"]),
        ("none", ["--buffer", "0", "--model", "gat", "--hidden", "8"]),
    ],
)
def test_a_resumed_run_is_the_run_that_nobody_broke(
    train: Train, engine_home: Home, controller: str, more: list[str]
) -> None:
    same = options(controller, *more)
    told, _ = train(*same, "--no-track").ends()
    whole = RunResult.load(engine_home.runs / told["run_id"])
    command = train(*same)
    run_id = command.kill_trainer(rank=0, epoch=1)
    told, _ = command.ends(1)
    assert told["error"] == "RoleError"
    run = _in_mlflow(engine_home, run_id)
    assert run.info.status == "FAILED"

    told, _ = train("--resume", run_id).ends()
    assert told["run_id"] == run_id
    broken = RunResult.load(engine_home.runs / run_id)
    assert_same(broken, whole)
    again = _in_mlflow(engine_home, run_id)
    assert again.info.run_id == run.info.run_id
    assert again.info.status == "FINISHED"
    assert again.info.start_time == run.info.start_time
    assert "rudder.error" not in again.data.tags
    assert again.data.metrics["restarts"] == 1
    assert again.data.metrics["test_metric"] == whole.summary["test_metric"]

    told, err = train("--resume", run_id).ends()
    assert "nothing to go on with" in err
    assert told["test_metric"] == whole.summary["test_metric"]


@pytest.mark.full
def test_a_launcher_that_was_killed_is_gone_on_from(train: Train, engine_home: Home) -> None:
    same = options("always")
    told, _ = train(*same, "--no-track").ends()
    whole = RunResult.load(engine_home.runs / told["run_id"])
    command = train(*same)
    while not list(engine_home.runs.glob("*/checkpoints/epoch=1/rank=1.npz")):
        assert command.process.poll() is None
        time.sleep(0.01)
    (left,) = engine_home.runs.glob("*/checkpoints/epoch=1/rank=1.npz")
    run_id = left.parts[-4]
    command.process.send_signal(signal.SIGSTOP)  # its trainers go on to their end meanwhile
    beside = train("--resume", run_id).ends(2)[0]
    assert "another process trains" in beside["message"]
    command.process.kill()
    command.process.communicate()
    command.traces.assert_gone(seconds=20)
    told, _ = train("--resume", str(engine_home.runs / run_id)).ends()
    assert_same(RunResult.load(engine_home.runs / run_id), whole)
    assert _in_mlflow(engine_home, run_id).info.status == "FINISHED"


def _in_mlflow(home: Home, run_id: str) -> Any:
    client = mlflow.MlflowClient(home.mlflow_uri)
    experiments = [each.experiment_id for each in client.search_experiments()]
    (run,) = client.search_runs(experiments, f"tags.`rudder.run_id` = '{run_id}'")
    return run


@pytest.mark.full
def test_a_checkpoint_that_cannot_be_written_is_told_and_training_goes_on(
    train: Train, engine_home: Home, tmp_path: Path
) -> None:
    """Rank 1 may write no file of 30 kB: a real refusal, as of a full disk."""
    plugin = tmp_path / "small_files.py"
    plugin.write_text(
        "import os, resource\n"
        "if os.environ.get('RANK') == '1':\n"
        "    limit = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limit[1]))\n"
    )
    # Few minibatches, so that the journal stays smaller.
    arguments = [GRAPH, "--parts", "2", "--epochs", "2", "--batch-size", "200", "--no-track"]
    told, err = train(*arguments, "--plugin", str(plugin)).ends()
    assert "epoch 0 has no checkpoint (trainer" in err
    assert "training goes on" in err
    result = RunResult.load(engine_home.runs / told["run_id"])
    assert [(c["kept"], c["failed"]) for c in result.details["checkpoints"]] == [(0, 2), (0, 2)]
    log = (engine_home.runs / told["run_id"] / "logs" / "trainer-1.log").read_text()
    assert "File too large" in log
    whole = RunResult.load(
        engine_home.runs / train(*arguments, "--no-checkpoint").ends()[0]["run_id"]
    )
    assert result.minibatches.column("loss").equals(whole.minibatches.column("loss"))
    assert [c["kept"] for c in whole.details["checkpoints"]] == [0, 0]
