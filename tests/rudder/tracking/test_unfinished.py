"""Runs whose process was killed: the next one ends them, and only them."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rudder.errors import HomeError, UsageError
from rudder.home import Home
from rudder.identity import Process
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.tracking import Tracker, tracker
from rudder.tracking.sending import sync
from rudder.tracking.store import exclusive
from rudder.tracking.unfinished import Note, end_those_of_dead_processes

from .conftest import MakeResult, free_port


class Child:
    """A process with a run that goes on until the process is killed."""

    def __init__(self, home: Home, scenario: Scenario, logs: Path, uri: str | None = None) -> None:
        ready, tell = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                run = Tracker(home, uri).run(scenario, Spec.parse("fixed"), experiment="killed")
                with run as tracked:
                    tracked.attach_logs(logs)
                    os.write(tell, tracked.local_id.encode())
                    signal.pause()
            finally:
                os._exit(1)
        os.close(tell)
        with open(ready) as pipe:
            self.local_id = pipe.read(32)
            assert len(self.local_id) == 32

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def find(client: Any, local_id: str) -> Any:
    everywhere = [each.experiment_id for each in client.search_experiments()]
    (run,) = client.search_runs(everywhere, f"tags.`rudder.local_id` = '{local_id}'")
    return run


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "trainer-0.log").write_text("epoch 1\n")
    return folder


def test_the_next_tracked_run_ends_a_killed_one(
    home: Home, scenario: Scenario, logs: Path, make_result: MakeResult, tmp_path: Path
) -> None:
    child = Child(home, scenario, logs)
    child.kill()
    last = 2 * 10**9  # seconds; the process wrote to its log for years
    os.utime(logs / "trainer-0.log", (last, last))
    result = make_result()
    tracker = Tracker(home)
    with tracker.run(result.scenario, result.controller) as tracked:
        with tracker.store.session() as client:
            run = find(client, child.local_id)
            assert find(client, tracked.local_id).info.status == "RUNNING"
        tracked.finish(result)
    assert run.info.status == "KILLED"
    assert run.info.end_time == 1000 * last
    assert f"pid {child.pid} " in run.data.tags["rudder.process"]
    assert run.data.tags["rudder.process"] in run.data.tags["rudder.error"]
    with tracker.store.session() as client:
        log = client.download_artifacts(run.info.run_id, "logs/trainer-0.log", str(tmp_path))
        assert Path(log).read_text() == "epoch 1\n"
        assert find(client, tracked.local_id).info.status == "FINISHED"
    assert list(home.outbox.iterdir()) == []


def test_sync_ends_a_killed_run_and_leaves_a_living_one(
    home: Home, scenario: Scenario, logs: Path
) -> None:
    dead, living = Child(home, scenario, logs), Child(home, scenario, logs)
    dead.kill()
    (row,) = sync(home)
    assert (row["name"], row["experiment"], row["sent"]) == (dead.local_id, "killed", True)
    with Tracker(home).store.session() as client:
        assert find(client, dead.local_id).info.status == "KILLED"
        assert find(client, living.local_id).info.status == "RUNNING"
    assert sync(home) == []
    living.kill()
    assert [row["name"] for row in sync(home)] == [living.local_id]


def test_a_killed_run_that_no_store_knew_is_kept_for_it(
    home: Home, scenario: Scenario, logs: Path, make_result: MakeResult
) -> None:
    child = Child(home, scenario, logs, f"http://127.0.0.1:{free_port()}")
    child.kill()
    result = make_result()
    with Tracker(home).run(result.scenario, result.controller) as tracked:
        tracked.finish(result)  # to another store: not where the killed one belongs
    assert tracked.problem is None
    (row,) = sync(home)
    assert (row["name"], row["sent"]) == (child.local_id, False)
    (row,) = sync(home, home.mlflow_uri)
    assert row["sent"]
    with Tracker(home).store.session() as client:
        assert find(client, child.local_id).info.status == "KILLED"


def test_a_process_that_died_after_its_run_was_packed_changes_nothing(
    home: Home, scenario: Scenario, make_result: MakeResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Tracker(home).run(scenario, Spec.parse("fixed"))
    with monkeypatch.context() as patch:
        patch.setattr(tracker.unfinished, "forget", lambda *_: os.getpid())
        patch.setattr(tracker, "send", lambda *_: None)
        with run as tracked:
            tracked.finish(make_result())
    note = home.outbox / f".{tracked.local_id}.running"
    assert note.exists()
    monkeypatch.setattr(Process, "is_gone", lambda self: True)
    (row,) = sync(home)
    assert row["sent"]
    with Tracker(home).store.session() as client:
        assert find(client, tracked.local_id).info.status == "FINISHED"
    assert list(home.outbox.iterdir()) == []


def test_two_processes_end_a_run_once(home: Home, scenario: Scenario, logs: Path) -> None:
    child = Child(home, scenario, logs)
    child.kill()
    others = []
    for _ in range(4):
        other = os.fork()
        if not other:
            os._exit(len(end_those_of_dead_processes(home)))
        others.append(other)
    codes = [os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) for other in others]
    assert sorted(codes) == [0, 0, 0, 1]
    assert [p.name for p in home.outbox.glob("[!.]*")] == [child.local_id]
    assert not list(home.outbox.glob(".*.running*"))


def test_a_run_that_another_process_is_ending_is_left_to_it(
    home: Home, scenario: Scenario, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Child(home, scenario, logs)
    child.kill()
    monkeypatch.setattr("rudder.tracking.store.LOCK_TIMEOUT_S", 0.1)
    with exclusive(home.outbox / f".{child.local_id}.lock"):
        assert end_those_of_dead_processes(home) == []
    (package,) = end_those_of_dead_processes(home)
    assert package.record.local_id == child.local_id


def test_a_run_that_was_ended_and_sent_meanwhile_is_not_ended_again(
    home: Home, scenario: Scenario
) -> None:
    run = Tracker(home).run(scenario, Spec.parse("fixed"))
    note = Note(run._record, run._specs, Process.own())
    path = home.outbox / f".{run.local_id}.running"
    assert tracker.unfinished._end(home, path, note) is None
    assert list(home.outbox.iterdir()) == []


def test_which_processes_are_gone() -> None:
    own = Process.own()
    assert not own.is_gone()
    assert dataclasses.replace(own, started=own.started - 1).is_gone()  # its number, used again
    assert dataclasses.replace(own, boot="before the machine went down").is_gone()
    # What cannot be seen from here may live.
    assert not dataclasses.replace(own, host="elsewhere", pid=2**22 + 1, boot="x").is_gone()
    assert not dataclasses.replace(own, namespace="pid:[1]", pid=2**22 + 1).is_gone()
    assert dataclasses.replace(own, pid=2**22 + 1).is_gone()  # beyond the largest number
    child = os.fork()
    if not child:
        signal.pause()
    of_child = dataclasses.replace(own, pid=child, started=_start_of(child))
    assert not of_child.is_gone()
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # dead, but still in the list
    assert of_child.is_gone()
    os.waitpid(child, 0)


def _start_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_the_note_lies_there_while_the_run_goes_on(
    home: Home, scenario: Scenario, make_result: MakeResult
) -> None:
    with Tracker(home).run(scenario, Spec.parse("fixed")) as tracked:
        assert [p.name for p in home.outbox.iterdir()] == [f".{tracked.local_id}.running"]
        tracked.finish(make_result())
        assert list(home.outbox.iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", '"x"', '{"version": 9}', '{"version": 1}'])
def test_a_damaged_note_is_named_and_left(
    home: Home, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    note = home.outbox / ".abc.running"
    note.write_text(text)
    with caplog.at_level(logging.WARNING, "rudder"):
        assert sync(home) == []
    assert f"{note} is no note of a run" in caplog.text
    assert note.exists()


def test_a_stop_while_the_run_is_opened_ends_it(
    home: Home, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    run = Tracker(home).run(scenario, Spec.parse("fixed"))
    with monkeypatch.context() as patch:
        patch.setattr(tracker, "log_params", interrupted)  # its run is made by then
        with pytest.raises(KeyboardInterrupt), run:
            pass
    with Tracker(home).store.session() as client:
        assert find(client, run.local_id).info.status == "KILLED"
    assert list(home.outbox.iterdir()) == []


def test_a_store_that_cannot_be_leaves_no_note(home: Home, scenario: Scenario) -> None:
    with (
        pytest.raises(UsageError),
        Tracker(home, "gopher://host/1").run(scenario, Spec.parse("fixed")),
    ):
        pass
    assert list(home.outbox.iterdir()) == []


def test_a_disk_that_takes_no_note_stops_no_run(
    home: Home,
    scenario: Scenario,
    make_result: MakeResult,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    run = Tracker(home).run(scenario, Spec.parse("fixed"))
    with monkeypatch.context() as patch:
        patch.setattr(tracker.unfinished, "_part", lambda path: path / "nowhere")
        run.__enter__()
    run.attach_logs(tmp_path)
    run.finish(make_result())
    assert run.problem is None
    assert "cannot note" in caplog.text
    assert "should it be killed" in caplog.text


def test_an_outbox_that_cannot_be_is_told_before_training(home: Home, scenario: Scenario) -> None:
    (home.root / "outbox").write_text("")
    with pytest.raises(HomeError, match="outbox"), Tracker(home).run(scenario, Spec.parse("fixed")):
        pytest.fail("training began")


def test_a_note_comes_back_as_it_was(home: Home, scenario: Scenario) -> None:
    run = Tracker(home).run(scenario, Spec.parse("fixed:interval=3"))
    note = Note(run._record, run._specs, Process.own(), "/somewhere")
    note.keep(home)
    (path,) = home.outbox.iterdir()
    assert tracker.unfinished._read(path) == note
