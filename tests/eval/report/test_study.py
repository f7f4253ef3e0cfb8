"""A sweep of real runs: no oracle, and constant schedules replayed beside it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from rudder_eval.cells import Cell
from rudder_eval.report.study import Study
from rudder_eval.report.tracked import robustness

REPLAYED = ("constant(every 2)", "timing-oracle")


@pytest.fixture(name="real")
def _real(planted: Any) -> Study:
    effects = {"static": 0.2, "fixed:interval=3": 0.1, "constant(every 2)": 0.1, "timing-oracle": 0}
    families = {"constant(every 2)": "constant", "timing-oracle": "oracle"}

    def of_real_runs(cell: Cell) -> Cell:
        if cell.controller in REPLAYED:
            return cell
        left_out = ("communication_vs_no_buffer", "regret", "regret_to_timing_oracle")
        summary = {k: v for k, v in cell.summary.items() if k not in left_out}
        return dataclasses.replace(cell, engine="distdgl", summary=summary)

    cells = planted(effects, families=families, seeds=3)
    return Study("real", [of_real_runs(cell) for cell in cells])


def test_real_runs_are_compared_in_and_out_of_distribution(real: Study) -> None:
    assert real.shift_metric.key == "communication"
    found = {one.controller: one.inside.mean for one in real.shifts}
    assert {"static", "fixed:interval=3"} <= set(found)
    assert found["fixed:interval=3"] < found["static"]


def test_the_run_of_a_sweep_gets_figures_of_what_is_compared(real: Study) -> None:
    figures = robustness(real)
    named = {name.partition("/")[2] for name in figures if name.startswith("gap_")}
    assert named == {"static", "fixed:interval_3", "timing-oracle"}
    for one in real.shifts:
        if one.controller == "static":
            assert figures["gap_communication/static"] == pytest.approx(one.gap.mean)
            assert figures["worst_communication/static"] == pytest.approx(one.worst_mean.mean)
