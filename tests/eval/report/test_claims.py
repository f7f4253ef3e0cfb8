"""Claims: verdicts follow what was planted."""

from __future__ import annotations

from typing import Any

import pytest
from rudder_eval.cells import Cell
from rudder_eval.report.claims import Finding, claims

from .conftest import EFFECTS, FAMILIES, LLM, MORE, SHIFTED, without_buffer


def findings(cells: list[Cell]) -> dict[str, Finding]:
    return {one.claim: one.finding for one in claims(cells)}


@pytest.fixture(name="make")
def _make(planted: Any) -> Any:
    def make(**changes: Any) -> dict[str, Finding]:
        arguments = {
            "effects": EFFECTS, "shifted": SHIFTED, "families": FAMILIES, "more": MORE,
            "seeds": 4, "between": 0.002, "noise": 0.004, **changes,
        }  # fmt: skip
        effects = arguments.pop("effects")
        return findings([without_buffer(cell) for cell in planted(effects, **arguments)])

    return make


def test_what_was_planted_is_supported(make: Any) -> None:
    found = make()
    verdicts = {claim: finding.verdict for claim, finding in found.items()}
    assert verdicts == {
        "A steered buffer fetches less than half of what training without one does.": "supported",
        "Steered beats static prefetching.": "supported",
        "Steered epochs are shorter than under static prefetching.": "supported",
        "Steered epochs are shorter than without prefetching.": "supported",
        # The fixed interval was planted as the best constant schedule everywhere.
        "No fixed rule stays right.": "not supported",
        "Classifiers degrade out of distribution.": "supported",
        "Out of distribution, classifiers replace too often.": "supported",
        "LLM agents hold up on unseen configurations.": "supported",
        "LLM agents hold up on unseen graphs.": "supported",
        "LLM agents degrade less than classifiers.": "supported",
        "Small language models answer validly.": "supported",
        "Agents foresee what their decisions do (Pass@1 about 80 %).": "supported",
        "Classifiers answer faster than agents.": "supported",
        "The time between replacements follows from the time an answer takes.": (
            "not testable here"
        ),
    }
    for finding in found.values():
        assert finding.result
        assert bool(finding.runs) == (finding.verdict != "not testable here")


def test_the_contrary_is_not_supported(make: Any) -> None:
    worse = {**EFFECTS, LLM: 0.9, "xgboost": 0.8, "mlp": 0.85, "static": -0.1}
    found = make(
        effects=worse,
        shifted={LLM: 0.1},
        more={
            **MORE,
            LLM: {**MORE[LLM], "valid_share": 0.9, "pass_at_1": 0.6, "latency_p50_s": 0.0},
            "timing-oracle": {"replace_share": 0.9},
        },
    )
    verdicts = {claim: finding.verdict for claim, finding in found.items()}
    supported = [claim for claim, verdict in verdicts.items() if verdict == "supported"]
    assert supported == ["Steered epochs are shorter than without prefetching."]  # none has 1.0
    untold = [claim for claim, verdict in verdicts.items() if verdict == "not testable here"]
    assert untold == ["The time between replacements follows from the time an answer takes."]


def test_pass_at_1_that_a_constant_reaches_too_is_no_foresight(make: Any) -> None:
    more = {**MORE, LLM: {**MORE[LLM], "pass_at_1": 0.85, "pass_at_1_constant": 0.86}}
    found = make(more=more)["Agents foresee what their decisions do (Pass@1 about 80 %)."]
    assert found.verdict == "not supported"
    assert "-1.0 points" in found.result


def test_schedules_that_win_in_different_scenarios_are_no_fixed_rule(planted: Any) -> None:
    cells = planted({"always": 0.0, "static": 0.0}, between=0.2, noise=0.001)
    found = findings(cells)["No fixed rule stays right."]
    assert found.verdict == "supported"
    assert "2 of 2 schedules are best somewhere in 8 scenarios" in found.result


def test_without_cells_of_its_kind_a_claim_is_not_testable(planted: Any) -> None:
    found = findings(planted({"always": 0.0}))
    assert {finding.verdict for finding in found.values()} == {"not testable here"}
    assert all(finding.result.startswith(("needs", "too few")) for finding in found.values())


def test_where_nothing_is_to_decide_no_gap_is_claimed(make: Any) -> None:
    scenarios = ("held", "held-large", "uniform", "batch-50", "batch-800", "fan-out", "wordnet",
                 "communities")  # fmt: skip
    found = make(headroom=dict.fromkeys(scenarios, 0.0))
    assert found["Classifiers degrade out of distribution."].verdict == "not testable here"


def test_seconds_that_a_replay_was_told_are_no_evidence(make: Any) -> None:
    told = {"latency_s": 0.3, "answer_s": None}
    more = {name: {**MORE[name], **told} for name in (LLM, "mlp")}
    found = make(more={**MORE, **more})["Classifiers answer faster than agents."]
    assert found.verdict == "not testable here"
    assert "measured" in found.result


def test_answers_measured_apart_stand_in_for_seconds_that_a_replay_was_told(make: Any) -> None:
    def found(agent_s: float) -> Finding:
        told = {"latency_s": 0.0, "answer_s": 0.001}
        more = {name: {**facts, **told} for name, facts in MORE.items()}
        more[LLM] |= {"answer_s": agent_s}
        finding = make(more=more)["Classifiers answer faster than agents."]
        assert isinstance(finding, Finding)
        return finding

    assert found(0.4).verdict == "supported"
    assert "0.400 s; each measured once" in found(0.4).result
    assert found(0.0005).verdict == "not supported"


def test_intervals_between_replacements_follow_latency(planted: Any) -> None:
    names = ("a", "b", "c", "d", "e", "f")
    more = {
        name: {"latency_p50_s": 0.1 * (i + 1), "replacement_interval_mean": 1.0 + i}
        for i, name in enumerate(names)
    }
    claim = "The time between replacements follows from the time an answer takes."
    found = findings(planted(dict.fromkeys(names, 0.0), more=more, seeds=2))[claim]
    assert found.verdict == "supported"
    few = findings(planted(dict.fromkeys(names[:4], 0.0), more=more, seeds=2))[claim]
    assert few.verdict == "not supported"  # 1 of 24 orders: p is 1/12, both ways
    assert "p = 0.083" in few.result
