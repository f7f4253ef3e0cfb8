"""Cells on disk: kills, retries, versions to come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rudder_eval.cells import (
    CONTROLS,
    Cell,
    append_cell,
    control_name,
    controlled,
    read_cells,
)

from rudder.errors import ResultError


def cell(digest: str, **changes: Any) -> Cell:
    fields = {
        "cell": digest, "scenario": "held", "split": "id_val", "controller": "always",
        "family": "heuristic", "seed": 0, "status": "finished",
    }  # fmt: skip
    return Cell(**{**fields, **changes})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    told = [cell("a", summary={"fetched": 3, "regret": 1.5}), cell("b", status="failed", error="é")]
    for one in told:
        append_cell(tmp_path / "cells.jsonl", one)
    assert read_cells(tmp_path / "cells.jsonl") == told


def test_a_line_cut_short_is_no_cell_and_harms_no_other(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    append_cell(path, cell("a"))
    append_cell(path, cell("b", error="naïve"))
    whole = path.read_bytes()
    for cut in range(1, len(whole) - whole.index(b"\n") - 1):
        path.write_bytes(whole[:-cut])
        # Without its newline alone, the last line is whole.
        assert [one.cell for one in read_cells(path)] == (["a", "b"] if cut == 1 else ["a"])
        append_cell(path, cell("c"))
        assert [one.cell for one in read_cells(path)][-1] == "c"
        assert read_cells(path)[0].cell == "a"


def test_the_last_line_of_a_cell_counts_where_the_first_one_stood(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    for one in (cell("a", status="failed"), cell("b"), cell("a")):
        append_cell(path, one)
    assert [(one.cell, one.status) for one in read_cells(path)] == [
        ("a", "finished"), ("b", "finished"),
    ]  # fmt: skip


def test_later_fields_are_left_out_and_foreign_lines_named(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text(json.dumps({**cell("a").to_dict(), "colour": "red"}) + "\n")
    assert read_cells(path) == [cell("a")]
    path.write_text(json.dumps({"cell": "a"}) + "\n")
    with pytest.raises(ResultError, match=r"cells\.jsonl:1.*scenario"):
        read_cells(path)
    path.write_text(json.dumps({**cell("a").to_dict(), "family": "wizard"}) + "\n")
    with pytest.raises(ResultError, match="wizard"):
        read_cells(path)
    path.write_text("3\n")
    with pytest.raises(ResultError, match=":1"):
        read_cells(path)
    with pytest.raises(ResultError, match="No such file"):
        read_cells(tmp_path / "none.jsonl")


def test_numbers_that_are_none() -> None:
    one = cell("a", summary={"x": float("inf"), "y": True, "z": "3", "n": None, "v": 2})
    assert [one.value(key) for key in ("x", "y", "z", "n", "w", "v")] == [None] * 5 + [2.0]


@pytest.mark.parametrize("kind", CONTROLS)
def test_controls_are_named_after_what_they_control(kind: str) -> None:
    assert controlled(control_name(kind, "llm:model=(x)")) == (kind, "llm:model=(x)")
    assert controlled("control") is None
    assert controlled("always") is None
