"""Metrics against numbers worked out by hand; baselines against trying every rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rudder_training_ml.judging import (
    METRICS,
    best_single_rule,
    best_threshold,
    captured,
    judge,
    majority,
)

from rudder.model import Examples

LABELS = np.array([1, 1, 0, 0, 0], np.int8)
GAIN = np.array([3.0, 1.0, -1.0, -2.0, -0.5])


def test_metrics_by_hand() -> None:
    answers = np.array([True, False, True, False, False])
    p = np.array([0.9, 0.4, 0.6, 0.2, 0.1])
    found = judge(LABELS, answers, GAIN, p)
    assert set(found) == set(METRICS)
    assert found["accuracy"] == pytest.approx(3 / 5)
    assert found["balanced_accuracy"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert found["f1"] == pytest.approx(1 / 2)
    # Of the 2 x 3 pairs only (0.4, 0.6) is in the wrong order.
    assert found["auc"] == pytest.approx(5 / 6)
    assert found["log_loss"] == pytest.approx(-np.log([0.9, 0.4, 0.4, 0.8, 0.9]).mean())
    assert found["balance"] == pytest.approx(2 / 5)
    assert found["predicted"] == pytest.approx(2 / 5)
    # 3 won and 1 lost, of the 4 that could be won.
    assert found["captured"] == pytest.approx(2 / 4)


def test_captured_at_its_ends() -> None:
    assert captured(LABELS == 1, GAIN) == 1.0
    assert captured(np.ones(5, bool), GAIN) == pytest.approx((4 - 3.5) / 4)
    assert captured(LABELS == 0, GAIN) == pytest.approx(-3.5 / 4)
    assert captured(np.zeros(5, bool), GAIN) == 0.0
    assert captured(np.ones(5, bool), -np.abs(GAIN)) is None


def test_what_cannot_be_told_is_none() -> None:
    nothing = judge(np.empty(0, np.int8), np.empty(0, bool), np.empty(0), np.empty(0))
    assert nothing == dict.fromkeys(METRICS)
    one = judge(np.zeros(5, np.int8), np.zeros(5, bool), GAIN, np.full(5, 0.5))
    assert one["auc"] is None
    assert one["balanced_accuracy"] is None
    assert one["accuracy"] == 1.0
    ranked = judge(LABELS, LABELS == 1, GAIN, GAIN, probabilities=False)
    assert (ranked["auc"], ranked["log_loss"]) == (1.0, None)


def test_the_majority() -> None:
    examples = Examples(("x",), np.zeros((5, 1)), LABELS, np.ones(5), np.array(["a"] * 5))
    assert not majority(examples)
    assert majority(replace(examples, labels=1 - LABELS))


few = st.integers(0, 4).map(float)


@st.composite
def small_examples(draw: st.DrawFn) -> Examples:
    count = draw(st.integers(4, 12))
    rows = draw(st.lists(st.tuples(few, few), min_size=count, max_size=count))
    labels = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    weights = draw(st.lists(st.integers(1, 5).map(float), min_size=count, max_size=count))
    return Examples(
        ("x", "y"),
        np.array(rows),
        np.array(labels, np.int8),
        np.array(weights),
        np.array(["a"] * count),
    )


def right(examples: Examples, answers: np.ndarray) -> float:
    return float(examples.weights[answers == (examples.labels == 1)].sum())


@given(small_examples())
def test_no_rule_on_one_column_is_better(examples: Examples) -> None:
    rule = best_single_rule(examples, examples.weights)
    best = right(examples, rule.answers(examples))
    for column in range(2):
        values = examples.rows[:, column]
        for at in np.unique(values)[1:]:
            assert right(examples, values >= at) <= best
            assert right(examples, values < at) <= best


def test_a_rule_says_what_it_does_and_ranks_by_its_column() -> None:
    rows = np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    labels = np.array([1, 1, 0, 0], np.int8)
    examples = Examples(("x", "y"), rows, labels, np.ones(4), np.array(["a"] * 4))
    rule = best_single_rule(examples, examples.weights)
    assert str(rule) == "x < 1.5"
    assert rule.answers(examples).tolist() == [True, True, False, False]
    score = rule.score(examples)
    told = judge(labels, rule.answers(examples), np.ones(4), score, probabilities=False)
    assert (told["accuracy"], told["auc"]) == (1.0, 1.0)


def test_weights_decide_between_rules() -> None:
    rows = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    labels = np.array([0, 1, 0, 1], np.int8)
    labels[1] = 0  # x is right but for row 2, y but for row 1
    examples = Examples(("x", "y"), rows, labels, np.ones(4), np.array(["a"] * 4))
    assert best_single_rule(examples, np.array([1.0, 1.0, 9.0, 1.0])).column == "y"
    assert best_single_rule(examples, np.array([1.0, 9.0, 1.0, 1.0])).column == "x"


shares = st.lists(st.integers(0, 10).map(lambda n: n / 10), min_size=4, max_size=12)


@given(small_examples(), shares)
def test_no_threshold_costs_less(examples: Examples, given_p: list[float]) -> None:
    p = np.resize(np.array(given_p), len(examples))
    limit = best_threshold(p, examples)
    assert 0 <= limit <= 1
    best = right(examples, p >= limit)
    for other in np.linspace(0, 1, 41):
        assert right(examples, p >= other) <= best + 1e-9


def test_of_equal_thresholds_the_one_next_to_a_half() -> None:
    examples = Examples(
        ("x",), np.zeros((4, 1)), np.array([0, 0, 1, 1], np.int8), np.ones(4), np.array(["a"] * 4)
    )
    assert best_threshold(np.array([0.1, 0.2, 0.6, 0.9]), examples) == pytest.approx(0.4)
    # 0.1 | 0.9 and 0.5 | 0.9 would be the same cut; there is one in the middle.
    assert best_threshold(np.array([0.1, 0.1, 0.9, 0.9]), examples) == pytest.approx(0.5)
