"""Work in other processes: done once each, errors told, and nobody left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rudder_training_ml.parallel import each

from rudder.errors import CollectionError, PluginError
from rudder.plugins import PluginFile


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
    with pytest.raises(CollectionError, match=r"killed.*run the same command again"):
        each(os._exit, [9, 9], 2, (), _nothing)


def test_plugins_are_loaded_by_hash(tmp_path: Path) -> None:
    path = tmp_path / "plugin.py"
    path.write_text("")
    with pytest.raises(PluginError, match=r"plugin\.py"):
        each(os.mkdir, [str(tmp_path / k) for k in "ab"], 2, [PluginFile(str(path), "0")], _nothing)
