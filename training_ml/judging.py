"""How well answers fit labels, and what any classifier must beat: no feature, or a single one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.model import Examples

METRICS = (
    "accuracy", "balanced_accuracy", "f1", "auc", "log_loss", "balance", "predicted", "captured",
)  # fmt: skip
"""``balance`` is the share of *replace* among the labels, ``predicted`` among the answers,
``captured`` the share of the possible gain that the answers collect."""

Floats = npt.NDArray[np.float64]
Answers = npt.NDArray[np.bool_]


def judge(
    labels: npt.NDArray[np.int8],
    answers: Answers,
    gain: Floats,
    score: Floats | None = None,
    *,
    probabilities: bool = True,
) -> dict[str, float | None]:
    """:data:`METRICS` of answers; None where one cannot be told.

    Args:
        labels: int8 (n,), 0 or 1.
        answers: bool (n,), True = replace.
        gain: float64 (n,): what replacing gains, in the label rule's unit; may be negative.
        score: float64 (n,): greater = rather replace; for AUC and log loss.
        probabilities: is ``score`` one?
    """
    if not len(labels):
        return dict.fromkeys(METRICS)
    from sklearn import metrics

    both = len(np.unique(labels)) == 2
    ranked = score is not None and both
    return {
        "accuracy": float(metrics.accuracy_score(labels, answers)),
        "balanced_accuracy": (
            float(metrics.balanced_accuracy_score(labels, answers)) if both else None
        ),
        "f1": float(metrics.f1_score(labels, answers, zero_division=0.0)),
        "auc": float(metrics.roc_auc_score(labels, score)) if ranked else None,
        "log_loss": (
            float(metrics.log_loss(labels, score, labels=[0, 1]))
            if score is not None and probabilities
            else None
        ),
        "balance": float(labels.mean()),
        "predicted": float(answers.mean()),
        "captured": captured(answers, gain),
    }


def captured(answers: Answers, gain: Floats) -> float | None:
    """Share of the possible gain that answers collect; at most 1, below 0 where they cost.

    1 minus this is the regret of the answers, weighted by what was at stake.
    """
    possible = float(gain[gain > 0].sum())
    return float(gain[answers].sum()) / possible if possible > 0 else None


@dataclass(frozen=True)
class SingleRule:
    """Replace where one column lies at or above a value, or below it.

    Attributes:
        column: its name.
        at: the value.
        above: replace at or above it; else below.
    """

    column: str
    at: float
    above: bool

    def answers(self, examples: Examples) -> Answers:
        """bool (n,) of examples that have the column."""
        values = examples.rows[:, examples.names.index(self.column)]
        answers: Answers = (values >= self.at) if self.above else (values < self.at)
        return answers

    def score(self, examples: Examples) -> Floats:
        """float64 (n,), greater = rather replace."""
        values = examples.rows[:, examples.names.index(self.column)]
        return values if self.above else -values

    def __str__(self) -> str:
        return f"{self.column} {'>=' if self.above else '<'} {self.at:.4g}"


def best_single_rule(train: Examples, weights: Floats) -> SingleRule:
    """The rule on one column whose mistakes weigh least on the training part.

    Values are tried half-way between neighbours, in both directions, in all columns; of equal rules
    the first wins.

    Args:
        weights: float64 (n,): what a mistake weighs; those that the estimator is fitted with, for a
            fair comparison.
    """
    signed = weights * np.where(train.labels == 1, 1.0, -1.0)
    best, found = -np.inf, SingleRule(train.names[0], float(train.rows[:, 0].min()), True)
    for column, name in enumerate(train.names):
        values, at = np.unique(train.rows[:, column], return_inverse=True)
        if len(values) < 2:
            continue
        gathered = np.bincount(at, weights=signed, minlength=len(values))
        above = gathered[::-1].cumsum()[::-1][1:]  # of replacing from the (i + 1)th value on
        below = gathered.cumsum()[:-1]
        for replaces_above, gained in ((True, above), (False, below)):
            index = int(np.argmax(gained))
            if gained[index] > best:
                best = float(gained[index])
                # Half-way, but never rounded down onto the lower value.
                middle = 0.5 * (values[index] + values[index + 1])
                limit = float(middle if middle > values[index] else values[index + 1])
                found = SingleRule(name, limit, replaces_above)
    return found


def majority(train: Examples) -> bool:
    """What most training labels say."""
    return bool(train.labels.mean() > 0.5)


def best_threshold(p: Floats, examples: Examples) -> float:
    """The p(replace) from which on answering *replace* weighs the mistakes of ``examples`` least.

    Half-way between neighbouring probabilities, or 0 or 1; of equal ones that closest to 0.5.
    """
    signed = examples.weights * np.where(examples.labels == 1, 1.0, -1.0)
    values, at = np.unique(p, return_inverse=True)
    gathered = np.bincount(at, weights=signed, minlength=len(values))
    gained = np.append(gathered[::-1].cumsum()[::-1], 0.0)  # the last: never
    middle = 0.5 * (values[1:] + values[:-1])
    places = np.concatenate([[0.0], np.where(middle > values[:-1], middle, values[1:]), [1.0]])
    # A threshold of 1 still takes p = 1 for replace.
    if values[-1] >= 1.0:
        gained, places = gained[:-1], places[:-1]
    most: Any = gained >= gained.max() - 1e-12 * max(1.0, float(np.abs(signed).sum()))
    candidates = places[most]
    return float(candidates[np.argmin(np.abs(candidates - 0.5))])
