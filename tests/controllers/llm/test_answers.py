"""What counts as an answer, and what does not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rudder_controllers.llm.answers import (
    MAX_EXPLANATION,
    AgentAnswer,
    InvalidAnswer,
    answer_schema,
    parse_answer,
)

GOOD: dict[str, Any] = {
    "decision": "replace",
    "expected_hits": "increase",
    "expected_communication": "stagnant",
    "explanation": "much is stale",
}


def text(**changes: Any) -> str:
    return json.dumps({**GOOD, **changes})


def test_one_object_of_the_schema_is_an_answer() -> None:
    for written in (text(), f"\n  {text()}\n", json.dumps(GOOD, indent=4)):
        assert parse_answer(written) == AgentAnswer(**GOOD)
    bare = {key: value for key, value in GOOD.items() if key != "explanation"}
    assert parse_answer(json.dumps(bare)).explanation == ""


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("No, I would not. Yesterday …", "does not begin with an object"),
        (f"Sure! {text()}", "does not begin with an object"),
        (f"```json\n{text()}\n```", "does not begin with an object"),
        (f"<think>replace?</think>{text()}", "does not begin with an object"),
        ("I cannot help with that.", "does not begin with an object"),
        (f"[{text()}]", "does not begin with an object"),
        (text() + text(decision="keep"), "more than one object"),
        (text() + " trailing words", "more than one object"),
        (text()[:-1], "no JSON"),
        (text()[:40], "no JSON"),
        ('{"decision": "replace", "decision": "keep"}', "a key is given twice"),
        ("{" * 100_000, "longer than"),
        ('{"a":' * 3_000, "no JSON"),
        (text(decision="yes"), "decision"),
        (text(decision="Replace"), "decision"),
        (text(decision=True), "decision"),
        (text(decision=None), "decision"),
        (text(decision=["replace"]), "decision"),
        (text(expected_hits="up"), "expected_hits"),
        (text(expected_communication=""), "expected_communication"),
        (text(explanation="x" * (MAX_EXPLANATION + 1)), "explanation"),
        (text(explanation=3), "explanation"),
        (text(confidence=0.9), "confidence"),
        ('{"decision": "replace"}', "expected_hits"),
        ("{}", "decision"),
    ],
)
def test_anything_else_is_none(written: str, why: str) -> None:
    with pytest.raises(InvalidAnswer, match=why):
        parse_answer(written)


def test_schema_and_parser_agree() -> None:
    schema = answer_schema()
    assert list(schema["properties"]) == list(AgentAnswer.model_fields) == schema["required"]
    assert schema["additionalProperties"] is False
    for field in ("decision", "expected_hits", "expected_communication"):
        for value in schema["properties"][field]["enum"]:
            assert getattr(parse_answer(text(**{field: value})), field) == value
