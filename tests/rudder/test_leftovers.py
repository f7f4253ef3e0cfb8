"""What dead runs leave is found and removed; what only looks like it is not touched."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rudder import leftovers
from rudder.cli.app import main
from rudder.cluster.arrays import ArrayNote
from rudder.cluster.roles import python_command
from rudder.home import Home
from rudder.identity import NOTE_VERSION, Process
from rudder.spec import Spec
from rudder.steering.service import NOTE, SOCKET, ControllerService

SLEEP = [sys.executable, "-I", "-c", "import time; time.sleep(60)"]


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Start a process that is ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: str) -> Process:
        started.append(subprocess.Popen(command))
        return Process.of(started[-1].pid)

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def dead() -> Process:
    child = subprocess.Popen([sys.executable, "-I", "-c", "import sys; sys.stdin.read()"],
                             stdin=subprocess.PIPE)  # fmt: skip
    process = Process.of(child.pid)
    child.communicate()
    return process


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    found = {"shared": tmp_path / "shm", "temporary": tmp_path / "tmp"}
    for folder in found.values():
        folder.mkdir()
    return found


def served(folder: Path, owner: Process, process: Process, **more: Any) -> Path:
    folder.mkdir()
    (folder / SOCKET).touch()
    note = {"version": NOTE_VERSION, "owner": asdict(owner), "process": asdict(process), **more}
    (folder / NOTE).write_text(json.dumps(note))
    return folder


def told(home: Home, places: dict[str, Path]) -> list[tuple[str, str]]:
    return [(each.kind, each.what) for each in leftovers.find(home, **places)]


def test_a_service_of_a_dead_launcher_and_its_folder(
    home: Home, places: dict[str, Path], dead: Process, start: Callable[..., Process]
) -> None:
    alive = start(*SLEEP)
    folder = served(places["temporary"] / "rudder-a", dead, alive)
    found = leftovers.find(home, **places)
    assert [(each.kind, each.what) for each in found] == [
        ("process", str(alive.pid)), ("folder", str(folder)),
    ]  # fmt: skip
    assert all(str(dead) in each.proof for each in found)
    for each in found:
        each.remove()
    assert not folder.exists()
    assert os.waitstatus_to_exitcode(os.waitpid(alive.pid, 0)[1]) == -9
    assert told(home, places) == []


def test_look_alikes_of_a_service_are_left_alone(
    home: Home, places: dict[str, Path], dead: Process, start: Callable[..., Process]
) -> None:
    here, alive = places["temporary"], start(*SLEEP)
    served(here / "rudder-running", Process.own(), alive)
    served(here / "rudder-elsewhere", replace(dead, host="another machine"), dead)
    served(here / "rudder-container", replace(dead, namespace="pid:[1]"), dead)
    served(here / "rudder-newer", dead, alive, version=NOTE_VERSION + 1)
    served(here / "rudder-used", dead, dead)
    (here / "rudder-used" / "results.csv").touch()
    served(here / "other-name", dead, alive)
    (here / "rudder-empty").mkdir()
    (here / "rudder-damaged").mkdir()
    (here / "rudder-damaged" / NOTE).write_text('{"version": 1, "owner": {"pid": 1}}')
    (here / "rudder-link").symlink_to(here / "other-name")
    # Its number has been given to another process since.
    again = replace(alive, started=alive.started - 1)
    folder = served(here / "rudder-again", dead, again)
    assert told(home, places) == [("folder", str(folder))]


def test_a_service_that_runs_notes_whose_it_is(
    home: Home, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A path short enough for a socket, which the test's own folder is not everywhere.
    places["temporary"] = short = Path(tempfile.mkdtemp(prefix="left"))
    monkeypatch.setattr("tempfile.tempdir", str(short))
    with ControllerService(Spec.parse("always")) as service:
        note = json.loads(service.socket.with_name(NOTE).read_text())
        assert Process(**note["owner"]) == Process.own()
        assert note["process"]["pid"] == service.pid
        assert told(home, places) == []
        monkeypatch.setattr(Process, "is_gone", lambda self: self.pid == os.getpid())
        kinds = [kind for kind, _ in told(home, places)]
    assert kinds == ["process", "folder"]
    short.rmdir()  # empty by now


@pytest.fixture
def world(tmp_path: Path, start: Callable[..., Process]) -> Callable[[int], Process]:
    """``world(launcher)``: what a process that holds hosts looks like; it only sleeps."""
    package = tmp_path / "fake" / "rudder" / "cluster"
    package.mkdir(parents=True)
    (package / "world.py").write_text("import time\ndef main(arguments): time.sleep(60)\n")

    def run(launcher: int) -> Process:
        command = list(python_command("rudder.cluster.world", json.dumps({"parent": launcher})))
        command[5] = json.dumps([str(package.parents[1]), *json.loads(command[5])])
        return start(*command)

    return run


def test_hosts_whose_launcher_is_gone(
    home: Home,
    places: dict[str, Path],
    dead: Process,
    world: Callable[[int], Process],
    start: Callable[..., Process],
) -> None:
    orphan = world(dead.pid)
    world(os.getpid())  # its launcher runs
    start(*SLEEP, "from rudder.cluster.world import main", json.dumps({"parent": dead.pid}))
    older = start(*SLEEP)
    found = leftovers.find(home, **places)
    assert [(each.kind, each.what) for each in found] == [("process", str(orphan.pid))]
    assert older.pid != orphan.pid
    found[0].remove()
    assert os.waitstatus_to_exitcode(os.waitpid(orphan.pid, 0)[1]) == -9


MAPS = """
import mmap, sys, time
file = open(sys.argv[1], "w+b"); file.truncate(4096)
held = mmap.mmap(file.fileno(), 4096)
print("mapped", flush=True); time.sleep(60)
"""


def test_arrays_of_a_dead_agent(
    home: Home, places: dict[str, Path], dead: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = places["shared"]
    (shared / "before-kvdata-x").write_bytes(b"1")
    note = ArrayNote(shared)
    (shared / "foreign-kvdata-x").write_bytes(b"1")  # of a process that is not below us
    for name in ("ours-kvdata-x", "again-kvdata-x"):
        command = [sys.executable, "-I", "-c", MAPS, str(shared / name)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as role:
            assert role.stdout is not None
            assert role.stdout.readline() == b"mapped\n"
            note.look()
            assert told(home, places) == []  # its owner runs
            monkeypatch.setattr(Process, "is_gone", lambda self: True)
            assert (shared / name).name not in str(told(home, places))  # it is in use
            monkeypatch.undo()
            role.kill()
    # Made anew by somebody else, under the same name and beside the old one, which keeps its inode.
    (shared / "again-kvdata-x").rename(shared / "moved")
    (shared / "again-kvdata-x").write_bytes(b"2")
    monkeypatch.setattr(Process, "is_gone", lambda self: True)
    found = leftovers.find(home, **places)
    assert [each.what for each in found] == [str(shared / "ours-kvdata-x"), str(note.path)]
    for each in found:
        each.remove()
    assert sorted(path.name for path in shared.iterdir()) == [
        "again-kvdata-x", "before-kvdata-x", "foreign-kvdata-x", "moved",
    ]  # fmt: skip


def test_a_note_of_arrays_goes_with_them(places: dict[str, Path]) -> None:
    note = ArrayNote(places["shared"])
    note.look()
    assert not note.path.exists()
    note.path.touch()
    note.forget()
    assert not note.path.exists()


def test_half_made_folders_that_nobody_is_making(home: Home, places: dict[str, Path]) -> None:
    for name in ("free", "held", "unlocked"):
        folder = home.partitions / f".{name}.part"
        (folder / "part0").mkdir(parents=True)
    (home.graphs / "complete").mkdir()
    for name in ("free", "held"):
        (home.partitions / f".{name}.lock").touch()
    with (home.partitions / ".held.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        [left] = leftovers.find(home, **places)
        assert left.what == str(home.partitions / ".free.part")
        left.remove()
        assert not Path(left.what).exists()
        assert (home.partitions / ".held.part").exists()


class TestTheCommand:
    @pytest.fixture
    def left(
        self, home: Home, places: dict[str, Path], dead: Process, monkeypatch: pytest.MonkeyPatch
    ) -> Path:
        monkeypatch.setattr("tempfile.tempdir", str(places["temporary"]))
        return served(places["temporary"] / "rudder-left", dead, dead)

    def test_it_lists_and_removes_when_told_to(
        self, home: Home, left: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ask = ["doctor", "--clean", "--home", str(home.root)]
        assert main(ask) == 0
        said = capsys.readouterr()
        assert str(left) in said.out
        assert "--yes" in said.err
        assert left.exists()
        assert main([*ask, "--yes", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [row["removed"] for row in rows if row["what"] == str(left)] == ["yes"]
        assert not left.exists()

    def test_what_cannot_be_removed_is_code_1(
        self, home: Home, left: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        def refuse(self: Path) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(Path, "rmdir", refuse)
        assert main(["doctor", "--clean", "--yes", "--home", str(home.root)]) == 1
        assert "not permitted" in capsys.readouterr().out

    def test_the_report_tells_of_them(
        self, home: Home, left: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        from rudder.cli import doctor

        [_, check] = doctor.data(home.root)
        assert check.ok is None
        assert str(left) in check.found
        assert "--clean" in check.advice

    @pytest.mark.parametrize("wrong", [["--yes"], ["--clean", "--model", "always"]])
    def test_wrong_use(self, wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["doctor", *wrong]) == 2
        assert "--clean" in capsys.readouterr().err
