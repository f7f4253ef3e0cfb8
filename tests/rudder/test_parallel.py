"""Work in other processes: done once each, errors told, and nobody left behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from rudder.errors import PluginError, WorkerError
from rudder.parallel import each, stream
from rudder.plugins import PluginFile, load_file


def _nothing() -> None:
    """Nobody is told."""


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_task_is_done_once(tmp_path: Path, jobs: int) -> None:
    told: list[None] = []
    places = [str(tmp_path / str(k)) for k in range(6)]
    each(os.mkdir, places, jobs, (), lambda: told.append(None))  # would fail the second time
    assert sorted(path.name for path in tmp_path.iterdir()) == [str(k) for k in range(6)]
    assert len(told) == 6


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_error_of_a_task_is_raised(tmp_path: Path, jobs: int) -> None:
    (tmp_path / "1").mkdir()
    with pytest.raises(FileExistsError, match="1"):
        each(os.mkdir, [str(tmp_path / str(k)) for k in range(3)], jobs, (), _nothing)


def test_a_process_that_is_killed_is_told() -> None:
    with pytest.raises(WorkerError, match=r"killed.*run the same command again"):
        each(os._exit, [9, 9], 2, (), _nothing)


def test_plugins_are_loaded_by_hash(tmp_path: Path) -> None:
    path = tmp_path / "plugin.py"
    path.write_text("")
    with pytest.raises(PluginError, match=r"plugin\.py"):
        each(os.mkdir, [str(tmp_path / k) for k in "ab"], 2, [PluginFile(str(path), "0")], _nothing)


_WORK = """
import os, signal

def work(task, tell):
    tell(f"at {task}")
    if task < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    tell(f"past {task}")
"""


def test_a_task_whose_process_dies_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "working.py"
    path.write_text(_WORK)
    plugin = load_file(path)
    work = sys.modules[f"rudder_plugin_{plugin.sha256[:16]}"].work
    told: list[tuple[int, str]] = []
    lost: list[tuple[int, int | None]] = []

    def lose(task: int, code: int | None) -> int:
        lost.append((task, code))
        return 7

    done: list[int] = []
    stream(work, [1, -2, 3], 2, [plugin], lambda *event: told.append(event), lose, done.append)
    assert lost == [(-2, -signal.SIGKILL)]
    assert sorted(done) == [1, 3, 7]
    expected = [(t, f"{w} {t}") for t in (1, 3, 7) for w in ("at", "past")] + [(-2, "at -2")]
    assert sorted(told) == sorted(expected)


_FAILING = """
class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")

def work(task, tell):
    raise Odd(task, lambda: None)
"""


def test_an_error_that_cannot_travel_is_told_in_words(tmp_path: Path) -> None:
    path = tmp_path / "failing.py"
    path.write_text(_FAILING)
    plugin = load_file(path)
    work = sys.modules[f"rudder_plugin_{plugin.sha256[:16]}"].work
    with pytest.raises(WorkerError, match="Odd: 1 and <function"):
        stream(work, [1], 1, [plugin], lambda *event: None, lambda task, code: None)
