"""Decisions over time, from what runs kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rudder_eval.cells import Cell
from rudder_eval.report.build import build
from rudder_eval.report.drift import decided, drifting
from rudder_eval.report.study import Study

from .conftest import decision, write_run


def cell(**changes: Any) -> Cell:
    fields: dict[str, Any] = {
        "cell": "c", "scenario": "communities", "split": "ood_drift", "axis": "drift",
        "controller": "xgboost", "family": "classifier", "seed": 0, "status": "finished",
        "run_id": "r", "run_dir": "runs/r",
    }  # fmt: skip
    return Cell(**{**fields, **changes})


def test_shares_hits_and_epochs_by_hand(tmp_path: Path) -> None:
    lines = [
        decision(rank, step, replace_=(rank == 0 and step == 2) or step == 5, hits=hits)
        for rank in (0, 1)
        for step, hits in ((1, 0.5), (2, 0.25 + rank / 2), (3, None), (4, 0.75), (5, 1.0))
    ]
    never = decision(0, 6, True, 0.5)
    write_run(tmp_path / "runs" / "r", [*lines, {**never, "applied_at": None}])
    found = decided(cell(), tmp_path)
    assert found is not None
    assert found.replaced.tolist() == [0, 0, 0.5, 0, 0, 1.0, 0]
    assert found.hits[[1, 2, 4, 5, 6]].tolist() == [0.5, 0.5, 0.75, 1.0, 0.5]
    assert np.isnan(found.hits[[0, 3]]).all()
    assert found.epochs == (4,)


def test_runs_that_are_gone_or_damaged_are_left_out(tmp_path: Path) -> None:
    assert decided(cell(), tmp_path) is None
    assert decided(cell(run_dir=""), tmp_path) is None
    write_run(tmp_path / "runs" / "r", [])
    assert decided(cell(), tmp_path) is None
    (tmp_path / "runs" / "r" / "decisions.jsonl").write_text('{"rank": 0}\n')
    assert decided(cell(), tmp_path) is None
    (tmp_path / "runs" / "r" / "decisions.jsonl").write_text("no JSON\n")
    assert decided(cell(), tmp_path) is None


def test_scenarios_drift_by_axis_or_by_what_was_run(tmp_path: Path) -> None:
    cells = []
    for name, fields in {
        "steady": {"seed_order": "uniform", "phases": 4, "batch_size_at": {}},
        "turns": {"seed_order": "communities"},
        "grows": {"seed_order": "uniform", "batch_size_at": {"1": 400}},
    }.items():
        write_run(tmp_path / "runs" / name, [], **fields)
        cells.append(
            cell(scenario=name, cell=name, split="id_val", axis="", run_dir=f"runs/{name}")
        )
    cells.append(cell())
    assert drifting(cells, tmp_path) == ["turns", "grows", "communities"]


def test_the_report_draws_them_and_names_the_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "r", [decision(0, s, s % 3 == 0, 0.5) for s in range(1, 9)])
    gone = replace(cell(), cell="d", controller="mlp", run_id="s", run_dir="runs/s")
    document = build(Study("x", [cell(), gone]), tmp_path)
    section = next(s for s in document.sections if s.anchor == "drift")
    assert [p.name for p in document.pictures if p.name.startswith("decisions")]
    assert "Runs: xgboost r." in section.blocks
