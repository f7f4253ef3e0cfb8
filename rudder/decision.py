"""What a controller answers, and what followed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rudder.errors import ControllerError

Effect = Literal["increase", "decrease", "stagnant"]
Outcome = Literal["valid", "invalid", "timeout", "error"]

HIT_RATE_TOLERANCE = 0.01
"""Below this change of the hit rate (1 point of %-Hits) the effect is stagnant."""
COMMUNICATION_TOLERANCE = 0.02
"""Below this relative change of the communication volume the effect is stagnant."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Replace or keep, for the next minibatch.

    Attributes:
        replace: replace stale nodes now?
        share: share of the stale slots to replace, 0..1; read only when ``replace``.
        expected_hits: predicted effect on %-Hits; None = no prediction.
        expected_communication: predicted effect on communication volume; None = no prediction.
        p_replace: probability given to ``replace``, 0..1; None = the controller has none.
        explanation: short text for people.
        in_support: does the observation resemble what the controller was fitted on? None = it
            cannot tell, or was not fitted.
        details: JSON values to keep beside the decision (a transcript); in no history. Numbers
            under ``prompt_tokens``, ``reused_tokens``, ``answer_tokens`` are added up over a run.
        outcome: ``valid``, or why this counts as no answer (then the buffer is kept).
        latency_s: seconds that the answer took; filled in by the public method.
    """

    replace: bool
    share: float = 1.0
    expected_hits: Effect | None = None
    expected_communication: Effect | None = None
    p_replace: float | None = None
    explanation: str = ""
    in_support: bool | None = None
    details: Mapping[str, Any] | None = None
    outcome: Outcome = "valid"
    latency_s: float = 0.0

    @classmethod
    def keep(cls, explanation: str = "", outcome: Outcome = "valid") -> Decision:
        return cls(replace=False, explanation=explanation, outcome=outcome)

    def problems(self) -> list[str]:
        """Everything that breaks the contract, in words; empty when valid."""
        found = []
        if not isinstance(self.replace, bool):
            found.append(f"replace must be True or False, found {self.replace!r}")
        if not _share(self.share):
            found.append(f"share must lie in 0..1, found {self.share!r}")
        if self.p_replace is not None and not _share(self.p_replace):
            found.append(f"p_replace must lie in 0..1 or be None, found {self.p_replace!r}")
        for name in ("expected_hits", "expected_communication"):
            value = getattr(self, name)
            if value is not None and value not in get_args(Effect):
                found.append(f"{name} must be one of {get_args(Effect)} or None, found {value!r}")
        if not isinstance(self.explanation, str):
            found.append(f"explanation must be text, found {self.explanation!r}")
        if self.in_support is not None and not isinstance(self.in_support, bool):
            found.append(f"in_support must be True, False or None, found {self.in_support!r}")
        if self.details is not None and not _is_json_object(self.details):
            found.append("details must be a mapping of JSON values, or None")
        if self.outcome not in get_args(Outcome):
            found.append(f"outcome must be one of {get_args(Outcome)}, found {self.outcome!r}")
        return found

    def validated(self) -> Decision:
        """Itself.

        Raises:
            ControllerError: with every problem found.
        """
        found = self.problems()
        if found:
            raise ControllerError("; ".join(found))
        return self


def _is_json_object(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    try:
        json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def effect_on_hits(before: float, after: float) -> Effect:
    """The effect class of a change of the hit rate (0..1) between windows of equal length."""
    return _effect(after - before, HIT_RATE_TOLERANCE)


def effect_on_communication(before: float, after: float) -> Effect:
    """The effect class of a change of fetched rows between windows of equal length."""
    return _effect(after - before, COMMUNICATION_TOLERANCE * max(before, 1.0))


def _effect(change: float, tolerance: float) -> Effect:
    if abs(change) < tolerance:
        return "stagnant"
    return "increase" if change > 0 else "decrease"
