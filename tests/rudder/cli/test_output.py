"""Reports: JSON that programs read, tables that people read, progress that stays out of both."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rudder.cli.output import emit, progress
from rudder.plain import plain
from rudder.spec import Spec


def test_json_is_all_of_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "a", "share": float("nan"), "path": Path("/x")}, {"name": "b", "extra": 1}]
    emit(rows, as_json=True, columns=["name"])
    captured = capsys.readouterr()
    assert json.loads(captured.out) == [
        {"name": "a", "share": None, "path": "/x"},
        {"name": "b", "extra": 1},
    ]
    assert captured.err == ""


def test_a_table_shows_the_columns_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"name": "always[1]", "edge_cut": 0.123456, "nodes": 1234567, "fits": True, "note": None},
        {"name": "x" * 150, "edge_cut": 0.5},
    ]
    emit(rows, as_json=False, columns=["name", "edge_cut", "nodes", "fits", "note"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3  # one line a row, also where the output is no terminal
    assert lines[0].split() == ["name", "edge", "cut", "nodes", "fits", "note"]
    assert lines[1].split() == ["always[1]", "0.1235", "1,234,567", "yes", "-"]


def test_one_object_is_shown_as_keys_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"hit_rate": 0.5, "hosts": ["a", "b"], "spec": {"p": 1}}, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["hit", "rate", "0.5"], ["hosts", "a,", "b"], ["spec", "p=1"],
    ]  # fmt: skip


def test_an_empty_list_is_an_empty_report(capsys: pytest.CaptureFixture[str]) -> None:
    emit([], as_json=True)
    assert json.loads(capsys.readouterr().out) == []


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as report:
        for share in (0.0, 0.5, 1.0, 2.0, -1.0):
            report("train", share)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.strip() == ""


def test_what_plug_ins_print_is_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    with progress():
        print("said by a controller")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "said by a controller" in captured.err


def test_plain_values() -> None:
    assert plain({1: np.int32(2), "b": np.array([True]), "c": (Spec("x"), {3})}) == {
        "1": 2,
        "b": [True],
        "c": [{"name": "x", "params": {}}, [3]],
    }
    assert plain(float("inf")) is None
    with pytest.raises(TypeError, match="JSON form"):
        plain(object())
