"""What is worth another start, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rudder.distdgl import checkpoint
from rudder.distdgl.attempts import (
    Gathering,
    alone,
    later_starts,
    logs_of_start,
    note_start,
    unfinished_job,
    worth_another,
)
from rudder.distdgl.checkpoint import Part
from rudder.distdgl.engine import DistDGLEngine
from rudder.distdgl.job import Job
from rudder.distdgl.place import ClusterPlace
from rudder.engine import RunOptions
from rudder.errors import (
    CapacityError,
    CheckpointError,
    ClusterError,
    ControllerError,
    NamespaceError,
    PolicyError,
    PreflightError,
    ResultError,
    RoleError,
    RudderError,
    ScenarioError,
    TransportError,
    UsageError,
)
from rudder.home import Home
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec


@pytest.mark.parametrize("lost", [RoleError, ClusterError, TransportError])
def test_what_was_lost_is_worth_another_start(lost: type[RudderError]) -> None:
    assert worth_another(lost("it"))


@pytest.mark.parametrize(
    "wrong",
    [UsageError, ScenarioError, CapacityError, ResultError, ControllerError, PolicyError,
     CheckpointError, NamespaceError, PreflightError],
)  # fmt: skip
def test_what_would_fail_again_is_not(wrong: type[RudderError]) -> None:
    assert not worth_another(wrong("it"))


class Failing(DistDGLEngine):
    """Every attempt but the last fails as told."""

    def __init__(self, errors: list[BaseException]) -> None:
        super().__init__()
        self.errors, self.after = errors, []  # type: ignore[var-annotated]

    def _attempt(self, *given: Any) -> RunResult:
        self.after.append(given[-1])
        if self.errors:
            raise self.errors.pop(0)
        return "done"  # type: ignore[return-value]


def attempts(home: Home, errors: list[BaseException], **options: Any) -> Failing:
    engine = Failing(errors)
    given = RunOptions(home, home.runs / "it", **options)
    assert engine.run(Scenario.make(graph="sbm"), Spec.parse("always"), given) == "done"
    return engine


def test_it_is_started_again_so_often_at_most(home: Home) -> None:
    lost: list[BaseException] = [RoleError("first\nand its log"), ClusterError("second")]
    assert attempts(home, list(lost), restarts=2).after == [None, "first", "second"]
    with pytest.raises(ClusterError, match="second"):
        attempts(home, list(lost), restarts=1)
    with pytest.raises(RoleError, match="first"):
        attempts(home, list(lost))


@pytest.mark.parametrize("error", [ResultError("no"), PolicyError("no"), KeyboardInterrupt()])
def test_it_is_not_started_again_after(home: Home, error: BaseException) -> None:
    with pytest.raises(type(error)):
        attempts(home, [error], restarts=5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"record": Path("t.trace"), "restarts": 1}, "leave out --record"),
        ({"record": Path("t.trace"), "resume": True}, "leave out --record"),
        ({"checkpoint": False, "restarts": 1}, "--no-checkpoint"),
        ({"restarts": -1}, "0 or more"),
    ],
)
def test_options_that_do_not_go_together(home: Home, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        attempts(home, [], **options)


def test_hosts_that_others_started_cannot_be_had_again() -> None:
    with pytest.raises(UsageError, match="--hosts env"):
        ClusterPlace("env").check_restarts()
    ClusterPlace().check_restarts()


@pytest.fixture
def job(home: Home) -> Job:
    made = Job(Scenario.make(graph="sbm"), Spec.parse("always"), home.root / "p", home.runs / "it")
    made.save()
    return made


def test_a_job_says_what_goes_on(job: Job) -> None:
    assert unfinished_job(job.run_dir, all_here=False) == job
    with pytest.raises(CheckpointError, match=r"no checkpoint that is whole.*from the beginning"):
        unfinished_job(job.run_dir)
    for rank in range(4):
        checkpoint.write(checkpoint.tail_path(job.checkpoint_dir, 0, rank), Part({}, {}))
        state = checkpoint.state_path(job.checkpoint_dir, 0, rank)
        checkpoint.write(state, Part({}, {"tails": [0]}))
    assert unfinished_job(job.run_dir) == job


def test_runs_that_cannot_go_on_say_why_and_what_to_do(job: Job, home: Home) -> None:
    for given, says in (
        (replace(job, record=home.root / "t.trace"), "records the access trace"),
        (replace(job, checkpoint=False), "--no-checkpoint"),
    ):
        given.save()
        with pytest.raises(UsageError, match=says) as told:
            unfinished_job(job.run_dir)
        assert "from the beginning" in str(told.value)
    job.path.write_text("{}")
    with pytest.raises(CheckpointError, match="from the beginning"):
        unfinished_job(job.run_dir)
    job.path.unlink()
    with pytest.raises(UsageError, match="from the beginning"):
        unfinished_job(job.run_dir)
    with pytest.raises(UsageError, match="there is no run"):
        unfinished_job(home.runs / "other")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    hold = (
        "import sys; from pathlib import Path; from rudder.distdgl.attempts import alone\n"
        "with alone(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-I", "-c", hold, str(tmp_path)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with pytest.raises(UsageError, match="another process trains"), alone(tmp_path):
        pass
    other.kill()  # no process, no lock
    other.communicate()
    with alone(tmp_path):
        pass


def test_starts_are_noted_and_each_has_its_logs(tmp_path: Path) -> None:
    assert later_starts(tmp_path) == []
    assert logs_of_start(tmp_path) == tmp_path / "logs"
    note_start(tmp_path, "trainer 1 was killed", 3)
    note_start(tmp_path, "it was resumed", None)
    with (tmp_path / "starts.jsonl").open("a") as file:
        file.write('{"at": 1')  # cut short by a crash
    assert [(s["after"], s["epoch"]) for s in later_starts(tmp_path)] == [
        ("trainer 1 was killed", 3), ("it was resumed", None),
    ]  # fmt: skip
    assert logs_of_start(tmp_path) == tmp_path / "logs" / "start=3"


class Apart:
    """Hosts that share no folder: what is collected comes from ``theirs``."""

    with_launcher = False

    def __init__(self, theirs: Path, fails: bool = False) -> None:
        self.theirs, self.fails = theirs, fails

    def collect(self, folder: Path) -> None:
        if self.fails:
            raise ClusterError("host1 is gone")
        for path in [p for p in self.theirs.rglob("*.npz") if p.is_file()]:
            there = folder / path.relative_to(self.theirs)
            there.parent.mkdir(parents=True, exist_ok=True)
            path.rename(there)


def test_checkpoints_of_hosts_that_share_no_folder_are_brought_here(tmp_path: Path) -> None:
    theirs, here = tmp_path / "theirs", tmp_path / "here"
    gathering = Gathering(here, 1, Apart(theirs))  # type: ignore[arg-type]
    for epoch in range(4):
        state = Part({}, {"tails": list(range(epoch + 1))})
        checkpoint.write(checkpoint.tail_path(theirs, epoch, 0), Part({}, {}))
        checkpoint.write(checkpoint.state_path(theirs, epoch, 0), state)
        gathering.kept(epoch)
    gathering.close()
    assert checkpoint.last_complete(here, 1) == 3
    assert len(list(here.rglob("rank=0.npz"))) == checkpoint.KEPT
    assert len(list(here.rglob("rank=0.tail.npz"))) == 4


def test_a_host_that_is_gone_is_told_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Gathering(tmp_path / "here", 1, Apart(tmp_path, fails=True)).close()  # type: ignore[arg-type]
    assert "host1 is gone" in caplog.text
