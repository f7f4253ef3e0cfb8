"""Decisions: what breaks the contract is listed, all of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rudder.decision import Decision
from rudder.errors import ControllerError


@given(
    st.builds(
        Decision,
        replace=st.booleans(),
        share=st.floats(0, 1),
        p_replace=st.none() | st.floats(0, 1),
        expected_hits=st.sampled_from([None, "increase", "decrease", "stagnant"]),
        expected_communication=st.sampled_from([None, "increase", "decrease", "stagnant"]),
        outcome=st.sampled_from(["valid", "invalid", "timeout", "error"]),
    )
)
def test_what_the_contract_allows_is_valid(decision: Decision) -> None:
    assert decision.problems() == []
    assert decision.validated() is decision


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"replace": "yes"}, "replace"),
        ({"replace": 1}, "replace"),
        ({"replace": None}, "replace"),
        ({"share": 1.01}, "share"),
        ({"share": -0.01}, "share"),
        ({"share": math.nan}, "share"),
        ({"share": "all"}, "share"),
        ({"share": True}, "share"),
        ({"p_replace": 2}, "p_replace"),
        ({"p_replace": math.nan}, "p_replace"),
        ({"expected_hits": "up"}, "expected_hits"),
        ({"expected_communication": "less"}, "expected_communication"),
        ({"explanation": None}, "explanation"),
        ({"outcome": "fine"}, "outcome"),
    ],
)
def test_each_breach_is_named(wrong: dict[str, object], named: str) -> None:
    decision = Decision(**{"replace": True, **wrong})  # type: ignore[arg-type]
    [problem] = decision.problems()
    assert problem.startswith(named)
    with pytest.raises(ControllerError, match=named):
        decision.validated()


def test_all_breaches_come_together() -> None:
    problems = Decision(replace=1, share=2, p_replace=3).problems()  # type: ignore[arg-type]
    assert len(problems) == 3


def test_keep_keeps() -> None:
    decision = Decision.keep("why", outcome="timeout")
    assert (decision.replace, decision.explanation, decision.outcome) == (False, "why", "timeout")
