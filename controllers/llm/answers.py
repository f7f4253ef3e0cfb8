"""What an agent answers: one JSON object of one schema, or it is no answer."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rudder.decision import Effect

MAX_EXPLANATION = 300
"""Characters; what a model may write beside its decision."""
MAX_ANSWER = 16_384
"""Characters; a longer text is no answer."""


class InvalidAnswer(Exception):
    """A text that is no answer; says why, in few words."""


class AgentAnswer(BaseModel):
    """The answer of a language model, in the order in which it is written."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    decision: Literal["replace", "keep"]
    expected_hits: Effect = Field(description="expected effect on %-Hits")
    expected_communication: Effect = Field(description="expected effect on rows fetched")
    explanation: str = Field("", max_length=MAX_EXPLANATION, description="one short sentence")


DECISIONS = ("replace", "keep")
EFFECTS = ("increase", "decrease", "stagnant")


def answer_schema() -> dict[str, Any]:
    """JSON schema of an answer, every key required and no other allowed."""
    text = {"type": "string", "maxLength": MAX_EXPLANATION}
    return {
        "type": "object",
        "properties": {
            "decision": {"type": "string", "enum": list(DECISIONS)},
            "expected_hits": {"type": "string", "enum": list(EFFECTS)},
            "expected_communication": {"type": "string", "enum": list(EFFECTS)},
            "explanation": text,
        },
        "required": ["decision", "expected_hits", "expected_communication", "explanation"],
        "additionalProperties": False,
    }


def parse_answer(text: str) -> AgentAnswer:
    """Read an answer: exactly one JSON object of the schema, white space around it allowed.

    Nothing is searched for in a text: an object in a fence, behind a preamble or after what a model
    thought aloud is no answer.

    Raises:
        InvalidAnswer: says what was found instead.
    """
    stripped = text.strip()
    if not stripped:
        raise InvalidAnswer("empty")
    if len(stripped) > MAX_ANSWER:
        raise InvalidAnswer(f"{len(stripped)} characters, longer than {MAX_ANSWER}")
    if not stripped.startswith("{"):
        raise InvalidAnswer(f"does not begin with an object: {_shown(stripped)}")
    try:
        found, end = json.JSONDecoder(object_pairs_hook=_once).raw_decode(stripped)
    except ValueError as error:
        raise InvalidAnswer(f"no JSON: {error}") from error
    except RecursionError as error:
        raise InvalidAnswer("no JSON: nested too deeply") from error
    if end != len(stripped):
        raise InvalidAnswer(f"more than one object: {_shown(stripped[end:].strip())} follows")
    try:
        return AgentAnswer(**found)
    except ValidationError as error:
        told = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'answer'}: {item['msg']}"
            for item in error.errors(include_url=False)
        )
        raise InvalidAnswer(told) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys occur once: of two decisions none is the one that was meant."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
