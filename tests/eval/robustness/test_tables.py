"""Tables: headroom first, splits, ID beside OOD, controls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rudder_eval.cells import Cell
from rudder_eval.robustness.metrics import COMMUNICATION, ORACLE_REGRET, REGRET, measure
from rudder_eval.robustness.tables import by_split, controls, scenario_facts, shifts


def test_headroom_decides_what_is_ranked(planted: Any) -> None:
    cells = planted({"one": 0.0}, headroom={"held": 0.019, "uniform": 0.02, "wordnet": -0.01})
    facts = {fact.name: fact for fact in scenario_facts(cells)}
    assert [name for name, fact in facts.items() if not fact.decides] == ["held", "wordnet"]
    assert facts["held"].headroom.mean == pytest.approx(0.019)
    assert facts["held"].seeds == 10


def test_the_best_constant_schedule_is_the_one_of_most_seeds(planted: Any) -> None:
    cells = [
        replace(cell, summary={**cell.summary, "best_constant_schedule": schedule})
        for cell, schedule in zip(
            planted({"one": 0.0}, seeds=3, scenarios={"held": "id_val"}),
            ("constant(always)", "constant(every 4)", "constant(every 4)"),
            strict=True,
        )
    ]
    assert scenario_facts(cells)[0].schedule == "constant(every 4)"
    assert scenario_facts(planted({"one": 0.0}))[0].schedule == ""


def test_a_policy_of_its_own_does_not_speak_for_the_scenario(planted: Any) -> None:
    cells = planted(
        {"one": 0.0, "two": 0.0, "massivegnn": 0.0},
        more={"massivegnn": {"headroom": 0.5}},
        headroom={"held": 0.01},
    )
    assert scenario_facts(cells)[0].headroom.mean == pytest.approx(0.01)


def test_without_an_oracle_all_scenarios_count(planted: Any) -> None:
    cells = planted({"one": 0.0}, more={"one": {"headroom": None}})
    assert all(fact.decides and not fact.known for fact in scenario_facts(cells))


def test_failed_cells_are_shown(planted: Any) -> None:
    cells = planted({"one": 0.0, "two": 0.0}, failed=[("one", "held", 3), ("one", "held", 4)])
    row = next(r for r in by_split(cells) if (r.controller, r.split) == ("one", "id_val"))
    assert (row.runs, row.failed, row.scenarios) == (18, 2, 2)
    assert row.means["communication"].values == 18


def test_a_controller_that_always_fails_has_a_row_without_numbers(planted: Any) -> None:
    dead = [("one", "fan-out", seed) for seed in range(10)]
    cells = planted({"one": 0.0, "two": 0.0}, failed=dead)
    row = next(r for r in by_split(cells) if (r.controller, r.split) == ("one", "ood_fan_out"))
    assert (row.runs, row.failed, row.scenarios, dict(row.means)) == (0, 10, 0, {})


def test_the_gap_is_the_one_planted(planted: Any) -> None:
    cells = planted(
        {"steady": 0.1, "fragile": 0.05}, shifted={"fragile": 0.2}, between=0.005, noise=0.01
    )
    found = {one.controller: one for one in shifts(cells)}
    assert found["steady"].gap.mean == pytest.approx(1.0, abs=0.02)
    assert found["steady"].gap.low < 1 < found["steady"].gap.high
    assert found["fragile"].gap.mean == pytest.approx(np.exp(0.2), abs=0.03)
    assert found["fragile"].gap.low > 1.1
    assert set(found["fragile"].axes) == {
        "ood_batch_size", "ood_fan_out", "ood_graph", "ood_drift",
    }  # fmt: skip
    assert found["fragile"].inside.values == 20  # id_val: nothing was fitted to it
    assert found["fragile"].outside.values == 50


def test_the_worst_group_is_the_one_planted(planted: Any) -> None:
    cells = [
        replace(
            cell,
            summary={
                **cell.summary,
                "regret_to_timing_oracle": cell.summary["regret_to_timing_oracle"] * 1.5,
            },
        )
        if cell.axis == "fan_out"
        else cell
        for cell in planted({"one": 0.0})
    ]
    [found] = shifts(cells)
    assert found.worst == "ood_fan_out"
    assert found.worst_mean.mean == pytest.approx(1.5, abs=0.05)


def test_several_are_taken_as_one(planted: Any) -> None:
    cells = planted({"x": 0.0, "y": 0.2}, between=0.0, noise=0.0)
    [both] = shifts(cells, ORACLE_REGRET, {"both": ["x", "y"]})
    assert both.inside.mean == pytest.approx(np.exp(0.1))


def test_without_a_buffer_there_is_no_regret() -> None:
    summary = {
        "fetched": 10, "remote_sampled": 10, "min_fetched": 10, "hits": 0, "regret": 1.0,
        "regret_to_timing_oracle": 1.0,
    }  # fmt: skip
    cell = Cell("c", "s", "id_val", "none", "baseline", 0, "finished", summary=summary)
    assert measure(cell, COMMUNICATION) == 1.0
    assert np.isnan(measure(cell, REGRET))
    assert np.isnan(measure(cell, ORACLE_REGRET))


def test_learned_controllers_stand_beside_their_controls(planted: Any) -> None:
    llm = "smollm2-135m"
    effects = {llm: 0.0, f"control-rate({llm})": 0.1, f"control-shuffled({llm})": 0.0, "always": 0}
    families: dict[str, Any] = {
        name: "control" if name.startswith("control") else "llm" for name in effects
    } | {"always": "heuristic"}
    predicted = {"pass_at_1": 0.6, "pass_at_1_constant": 0.7, "pass_at_1_balanced": 0.4}
    cells = planted(effects, families=families, more={llm: predicted}, between=0.002)
    found = {(row.side, row.control): row for row in controls(cells)}
    assert set(found) == {
        (side, kind)
        for side in ("id", "ood")
        for kind in ("rate", "shuffled", "constant", "balanced")
    }
    beside = found["ood", "rate"].comparison.difference.exp()
    assert beside.high < 1
    assert beside.mean == pytest.approx(np.exp(-0.1), abs=0.01)
    assert found["ood", "rate"].comparison.pairs == 50
    even = found["id", "shuffled"].comparison.difference
    assert even.low < 0 < even.high
    assert found["id", "constant"].comparison.difference.mean == pytest.approx(-0.1)
    assert found["id", "balanced"].other.mean == pytest.approx(0.4)


def test_a_control_that_was_never_run_is_a_row_without_pairs(planted: Any) -> None:
    cells = planted({"xgboost": 0.0}, families={"xgboost": "classifier"})
    rows = controls(cells)
    assert {(row.side, row.control) for row in rows} == {
        ("id", "rate"), ("id", "shuffled"), ("ood", "rate"), ("ood", "shuffled"),
    }  # fmt: skip
    assert all(row.comparison.pairs == 0 for row in rows)
