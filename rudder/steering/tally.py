"""What a run's steering comes to: counts that add up over trainers, and the shares made of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rudder.decision import Decision, Outcome
from rudder.observation import Past

TOKENS = ("prompt_tokens", "reused_tokens", "answer_tokens")
"""Tokens in prompts, those of them whose state was kept from before, and tokens written."""
_COUNTERS = ("effects", "tokens", "intervals")


@dataclass
class Tally:
    """Counts of one trainer, or of several when merged.

    A *prediction* is one expected effect (on %-Hits or on communication) of a valid answer; it is
    settled when the effect is known, and right when it is the one predicted.

    Attributes:
        asked: questions that were closed by an answer or by their deadline.
        valid, invalid, timeouts, errors: these by outcome.
        withdrawn: questions that the end of the run left open; not among ``asked``.
        replacing: valid answers that said replace.
        placed: valid answers that said whether the controller knows such observations.
        outside: of these, the ones that said no.
        predictions, settled, right: predictions made, settled and right.
        effects: settled predictions by effect, class expected and class observed, written
            ``hits_effect:increase>stagnant``.
        tokens: read and written by language models, by kind (:attr:`Decision.details`).
        replacements: minibatches in which rows were replaced.
        intervals: how often two replacements lay so many minibatches apart.
        latencies_s: seconds from question to answer, one per answer received.
    """

    asked: int = 0
    valid: int = 0
    invalid: int = 0
    timeouts: int = 0
    errors: int = 0
    withdrawn: int = 0
    replacing: int = 0
    placed: int = 0
    outside: int = 0
    predictions: int = 0
    settled: int = 0
    right: int = 0
    effects: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    replacements: int = 0
    intervals: Counter[int] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)

    def closed(self, decision: Decision, answer_s: float | None) -> None:
        """Count a question that was closed."""
        counter: dict[Outcome, str] = {
            "valid": "valid", "invalid": "invalid", "timeout": "timeouts", "error": "errors",
        }  # fmt: skip
        name = counter[decision.outcome]
        setattr(self, name, getattr(self, name) + 1)
        self.asked += 1
        if answer_s is not None:
            self.latencies_s.append(answer_s)
        for kind in TOKENS:
            self.tokens[kind] += int((decision.details or {}).get(kind, 0))
        if decision.outcome == "valid":
            self.replacing += decision.replace
            self.placed += decision.in_support is not None
            self.outside += decision.in_support is False
            self.predictions += len(_predictions(decision))

    def effect(self, past: Past) -> None:
        """Count the predictions of a decision whose effects are known now."""
        for name, expected in _predictions(past.decision).items():
            observed = getattr(past, name)
            self.settled += 1
            self.right += expected == observed
            self.effects[f"{name}:{expected}>{observed}"] += 1

    @classmethod
    def merge(cls, tallies: Iterable[Tally]) -> Tally:
        """The sum over trainers."""
        total = cls()
        for tally in tallies:
            for name, value in vars(tally).items():
                setattr(total, name, getattr(total, name) + value)
        return total

    def to_dict(self) -> dict[str, Any]:
        """Counts, and shares (null where there is nothing to share); seconds and minibatches."""
        latencies = sorted(self.latencies_s)
        intervals = sorted(self.intervals.elements())
        return {
            "asked": self.asked,
            "decisions": len(latencies),
            "valid_share": _share(self.valid, self.asked),
            "pass_at_1": _share(self.right, self.settled),
            "pass_at_1_constant": _best_constant(self.effects),
            "pass_at_1_balanced": _balanced(self.effects),
            "replace_share": _share(self.replacing, self.valid),
            "outside_support": self.outside if self.placed else None,
            "outside_support_share": _share(self.outside, self.placed),
            "predictions": self.predictions,
            "predictions_unsettled": self.predictions - self.settled,
            "invalid": self.invalid,
            "timeouts": self.timeouts,
            "errors": self.errors,
            "withdrawn": self.withdrawn,
            "latency_p50_s": _quantile(latencies, 0.5),
            "latency_p95_s": _quantile(latencies, 0.95),
            "replacements": self.replacements,
            "replacement_interval_mean": _share(sum(intervals), len(intervals)),
            "replacement_interval_p50": _quantile(intervals, 0.5),
            **{kind: self.tokens[kind] for kind in TOKENS if any(self.tokens.values())},
        }

    def to_state(self) -> dict[str, Any]:
        """Everything as plain values, to travel from a trainer to who merges."""
        counters = {name: sorted(getattr(self, name).items()) for name in _COUNTERS}
        return {**vars(self), **counters}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Tally:
        counters = {name: Counter(dict(state[name])) for name in _COUNTERS}
        return cls(**{**state, **counters})


def _predictions(decision: Decision) -> dict[str, str]:
    found = {
        "hits_effect": decision.expected_hits,
        "communication_effect": decision.expected_communication,
    }
    return {name: expected for name, expected in found.items() if expected is not None}


def _best_constant(effects: Counter[str]) -> float | None:
    """Share right of whoever always predicts the class that was observed most, per effect."""
    observed: dict[str, Counter[str]] = {}
    for key, count in effects.items():
        name, _, classes = key.partition(":")
        observed.setdefault(name, Counter())[classes.partition(">")[2]] += count
    return _share(sum(max(c.values()) for c in observed.values()), effects.total())


def _balanced(effects: Counter[str]) -> float | None:
    """Mean share right over the classes observed, each counted alike, per effect."""
    seen: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for key, count in effects.items():
        name, _, classes = key.partition(":")
        expected, _, observed = classes.partition(">")
        seen[f"{name}:{observed}"] += count
        right[f"{name}:{observed}"] += count if expected == observed else 0
    return _share(sum(right[one] / seen[one] for one in seen), len(seen))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _quantile(ordered: list[Any], q: float) -> float | None:
    """The smallest value with at least a share ``q`` of the values at or below it."""
    return float(ordered[max(0, math.ceil(q * len(ordered)) - 1)]) if ordered else None
