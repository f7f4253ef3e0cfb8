"""Counts that add up over trainers."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter

from rudder import Decision, Past
from rudder.steering import Tally

RISES = Decision(replace=True, expected_hits="increase", expected_communication="decrease")


def past(decision: Decision) -> Past:
    """%-Hits rose, communication stayed."""
    return Past(3, decision, 5, 4, 0.05, 0.0, "increase", "stagnant", 100.0)


def example() -> Tally:
    tally = Tally()
    tally.closed(RISES, 0.1)
    tally.closed(RISES, 0.4)
    tally.closed(Decision.keep(), 0.2)
    tally.closed(Decision.keep(outcome="invalid"), 0.3)
    tally.closed(Decision.keep(outcome="timeout"), None)
    tally.closed(Decision.keep(outcome="error"), 0.0)
    tally.effect(past(RISES))
    tally.effect(past(Decision.keep()))
    return tally


def test_by_hand() -> None:
    found = example().to_dict()
    assert (found["asked"], found["decisions"]) == (6, 5)
    assert found["valid_share"] == 3 / 6
    assert found["replace_share"] == 2 / 3
    # Two answers with two predictions each; one settled: hits right, communication wrong.
    assert (found["predictions"], found["predictions_unsettled"]) == (4, 2)
    assert found["pass_at_1"] == 0.5
    assert found["pass_at_1_constant"] == 1.0
    assert "prompt_tokens" not in found
    assert (found["invalid"], found["timeouts"], found["errors"]) == (1, 1, 1)
    # Nearest rank over 0.0, 0.1, 0.2, 0.3, 0.4.
    assert (found["latency_p50_s"], found["latency_p95_s"]) == (0.2, 0.4)


def test_pass_at_1_beside_what_needs_no_skill() -> None:
    tally = Tally()
    # Of four settled predictions of each effect, %-Hits rose three times and stagnated once, and
    # communication stagnated every time; predicted is always a rise and a fall.
    for hits in ("increase", "increase", "increase", "stagnant"):
        tally.effect(dataclasses.replace(past(RISES), hits_effect=hits))
    found = tally.to_dict()
    assert found["pass_at_1"] == 3 / 8
    assert found["pass_at_1_constant"] == (3 + 4) / 8
    # Right on all rises, on no stagnation of %-Hits, on no stagnation of communication.
    assert found["pass_at_1_balanced"] == (1 + 0 + 0) / 3
    assert tally.effects["communication_effect:decrease>stagnant"] == 4


def test_tokens_add_up() -> None:
    tally = Tally()
    for read in (100, 50):
        details = {"prompt_tokens": read, "answer_tokens": 2, "text": "…"}
        tally.closed(Decision(True, details=details), 0.1)
    found = tally.to_dict()
    assert (found["prompt_tokens"], found["answer_tokens"], found["reused_tokens"]) == (150, 4, 0)


def test_nothing_asked_is_null() -> None:
    found = Tally().to_dict()
    assert found["asked"] == 0
    for name in ("valid_share", "pass_at_1", "latency_p50_s", "replacement_interval_mean"):
        assert found[name] is None


def test_trainers_add_up_after_travelling_as_json() -> None:
    one, other = example(), example()
    one.replacements, one.intervals = 3, Counter({4: 2})
    other.replacements, other.intervals = 2, Counter({4: 1, 10: 1})
    there = [Tally.from_state(json.loads(json.dumps(t.to_state()))) for t in (one, other)]
    assert there == [one, other]
    total = Tally.merge(there).to_dict()
    assert total["asked"] == 12
    assert total["pass_at_1"] == 0.5
    assert total["replacements"] == 5
    assert total["replacement_interval_mean"] == (3 * 4 + 10) / 4
    assert total["replacement_interval_p50"] == 4.0
    assert Tally.merge([]) == Tally()
