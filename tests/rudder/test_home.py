"""The data directory: where it is, and what is wrong with it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from rudder.errors import HomeError
from rudder.home import Home


def test_the_given_one_wins_then_the_variable_then_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUDDER_HOME", str(tmp_path / "variable"))
    assert Home.resolve(Path("given")).root == tmp_path / "given"
    assert Home.resolve().root == tmp_path / "variable"
    monkeypatch.setenv("RUDDER_HOME", "")
    assert Home.resolve().root == tmp_path / "rudder-data"
    assert (tmp_path / "rudder-data").is_dir()


def test_folders_are_made_when_asked_for(home: Home) -> None:
    folders = (home.graphs, home.partitions, home.runs, home.outbox, home.mlflow_artifacts)
    for folder in folders:
        assert folder.is_dir()
        assert folder.parent == home.root
    path = home.mlflow_uri.removeprefix("sqlite:///")
    sqlite3.connect(path).close()
    assert Path(path).parent == home.root


def test_a_file_in_its_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(HomeError, match=str(path)):
            Home.resolve(path)


def test_a_strangers_or_closed_directory_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = os.getuid() + 1
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: stranger)
        with pytest.raises(HomeError, match=f"you are {stranger}; choose another with --home"):
            Home.resolve(tmp_path)
    # Root may write anywhere, so the answer of the kernel is replaced rather than the mode.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(HomeError, match="not writable"):
        Home.resolve(tmp_path)


def test_a_file_in_the_place_of_a_folder_is_told(home: Home) -> None:
    (home.root / "partitions").write_text("")
    with pytest.raises(HomeError, match=r"partitions: File exists; .*--home"):
        _ = home.partitions
