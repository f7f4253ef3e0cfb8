"""``rudder report``: which sweep, which files, what it prints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from rudder_eval.cells import Cell, append_cell

from rudder.cli.app import main


@pytest.fixture(name="home")
def _home(tmp_path: Path, planted: Any) -> Path:
    """Two sweeps of ``quick``, the newer of which has another winner, and one of ``paper``."""
    for age, (name, suite, effects) in enumerate(
        [
            ("new", "quick", {"always": 0.0, "static": 0.5}),
            ("old", "quick", {"always": 0.5, "static": 0.0}),
            ("other", "paper", {"always": 0.0}),
        ]
    ):
        folder = tmp_path / "sweeps" / name
        folder.mkdir(parents=True)
        head = {"schema_version": 1, "name": name, "suite": {"name": suite, "digest": "abc"}}
        (folder / "sweep.json").write_text(json.dumps(head))
        os.utime(folder / "sweep.json", (1e9 - age, 1e9 - age))
        cells: list[Cell] = planted(effects, seeds=2, failed=[("always", "held", 1)])
        for cell in cells:
            append_cell(folder / "cells.jsonl", cell)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("given", "sweep"),
    [([], "new"), (["old"], "old"), (["quick"], "new"), (["paper"], "other"),
     (["some/quick.toml"], "new")],
)  # fmt: skip
def test_it_finds_the_sweep_that_is_meant(
    home: Path, capsys: pytest.CaptureFixture[str], given: list[str], sweep: str
) -> None:
    assert main(["report", *given, "--home", str(home), "--json"]) == 0
    found = told(capsys)
    assert found["sweep"] == sweep
    folder = home / "sweeps" / sweep / "report"
    assert found["files"] == {
        "html": str(folder / "report.html"), "markdown": str(folder / "report.md"),
        "data": str(folder / "report.json"),
    }  # fmt: skip
    best = {"new": "always", "old": "static", "other": "always"}[sweep]
    assert found["ranking"][0]["controller"] == best
    assert found["failed"][0]["controller"] == "always"


def test_a_folder_is_a_sweep_and_out_is_kept(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "here" / "it is"
    given = str(home / "sweeps" / "old")
    assert main(["report", given, "--home", str(home), "--out", str(out)]) == 0
    captured = capsys.readouterr()
    assert "static" in captured.out
    assert "1 of 32 cells failed" in captured.err
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    figures = {path.stem for path in (out / "figures").iterdir()}
    assert {"standings", "heat-map"} <= figures
    markdown = (out / "report.md").read_text()
    assert all(f"(figures/{name}.svg)" in markdown for name in figures)
    assert json.loads((out / "report.json").read_text())["sweep"] == "old"
    assert not (home / "sweeps" / "old" / "report").exists()


def test_a_name_that_is_none_lists_those_that_are(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "nwe", "--home", str(home)]) == 2
    assert "new, old, other" in capsys.readouterr().err


def test_without_a_sweep_it_says_how_to_make_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--home", str(tmp_path / "empty")]) == 2
    assert "rudder evaluate" in capsys.readouterr().err


def test_a_sweep_that_has_not_ended_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "sweeps" / "old" / "sweep.json"
    lines = (home / "sweeps" / "old" / "cells.jsonl").read_text().splitlines()
    asked = [json.loads(line)["cell"] for line in lines]
    path.write_text(json.dumps({**json.loads(path.read_text()), "cells": [*asked, "0" * 16]}))
    assert main(["report", "old", "--home", str(home), "--no-track"]) == 0
    assert "1 cell of this sweep not run yet" in capsys.readouterr().err
    report = path.parent / "report"
    assert "1 cell of this sweep not run yet" in (report / "report.md").read_text()
    assert json.loads((report / "report.json").read_text())["missing"] == 1


def test_a_sweep_without_cells_or_of_another_shape_is_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "sweeps" / "new" / "cells.jsonl").unlink()
    assert main(["report", "new", "--home", str(home)]) == 1
    assert "no cells yet" in capsys.readouterr().err
    (home / "sweeps" / "old" / "sweep.json").write_text("[]")
    assert main(["report", "old", "--home", str(home)]) == 1
    assert "schema version" in capsys.readouterr().err
