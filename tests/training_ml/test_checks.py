"""What is refused before any estimator sees it, and by which words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rudder_training_ml.checks import check, select

from rudder.errors import TrainingDataError, UnknownNameError
from rudder.model import Examples

Parts = dict[str, Examples]


def with_rows(examples: Examples, column: str, values: object) -> Examples:
    rows = examples.rows.copy()
    rows[:, examples.names.index(column)] = values
    return replace(examples, rows=rows)


def test_sound_examples_pass_and_are_described(parts: Parts) -> None:
    checked = check(parts)
    assert checked.constant == ()
    assert checked.balance["train"] == parts["train"].labels.mean()
    assert 0.3 < checked.balance["test"] < 0.7


def test_a_constant_column_is_told_and_no_error(parts: Parts) -> None:
    parts["train"] = with_rows(parts["train"], "occupancy", 1.0)
    assert check(parts).constant == ("occupancy",)
    assert check(parts, ["hit_rate", "progress"]).constant == ()


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_only(parts: Parts, label: int) -> None:
    one = {
        name: replace(examples, labels=np.full(len(examples), label, np.int8))
        for name, examples in parts.items()
    }
    with pytest.raises(TrainingDataError, match=r"train part has one class only: all of its 160"):
        check(one)


def test_three_rows(parts: Parts) -> None:
    parts["train"] = parts["train"].take(np.arange(3))
    with pytest.raises(TrainingDataError, match=r"train part has 3 rows, at least 20"):
        check(parts)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_values_that_are_not_finite_name_their_columns(
    parts: Parts, value: float, part: str
) -> None:
    rows = parts[part].rows.copy()
    rows[3, parts[part].names.index("stale_share")] = value
    rows[:2, parts[part].names.index("progress")] = value
    parts[part] = replace(parts[part], rows=rows)
    with pytest.raises(TrainingDataError) as caught:
        check(parts)
    assert f"the {part} part has NaN or infinity" in str(caught.value)
    assert f"stale_share (1 of {len(rows)} rows), progress (2 of" in str(caught.value)
    assert "hit_rate" not in str(caught.value)


def test_columns_that_are_left_out_need_not_be_finite(parts: Parts) -> None:
    parts["train"] = with_rows(parts["train"], "fetch_time_share", np.nan)
    check(parts, ["hit_rate", "progress"])


def test_a_class_of_the_validation_part_only(parts: Parts) -> None:
    parts["train"] = replace(parts["train"], labels=np.zeros(160, np.int8))
    with pytest.raises(TrainingDataError, match="'replace' occurs in the validation part only"):
        check(parts)


def test_a_validation_part_of_one_class(parts: Parts) -> None:
    parts["validation"] = replace(parts["validation"], labels=np.ones(80, np.int8))
    with pytest.raises(TrainingDataError, match="validation part has one class only"):
        check(parts)


def test_too_few_of_a_class(parts: Parts) -> None:
    labels = np.zeros(160, np.int8)
    labels[:4] = 1
    parts["train"] = replace(parts["train"], labels=labels)
    with pytest.raises(TrainingDataError, match="only 4 of the 160 rows"):
        check(parts)


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_weights_that_are_not_positive(parts: Parts, weight: float) -> None:
    weights = parts["validation"].weights.copy()
    weights[7] = weight
    parts["validation"] = replace(parts["validation"], weights=weights)
    with pytest.raises(TrainingDataError, match=r"validation part has weights .* in row 7"):
        check(parts)


def test_labels_that_are_no_answers(parts: Parts) -> None:
    labels = parts["test"].labels.copy()
    labels[0] = 2
    parts["test"] = replace(parts["test"], labels=labels)
    with pytest.raises(TrainingDataError, match=r"test part has the labels \[2\]"):
        check(parts)


def test_a_group_on_both_sides(parts: Parts) -> None:
    groups = parts["test"].groups.copy()
    groups[:40] = "b"
    parts["test"] = replace(parts["test"], groups=groups)
    with pytest.raises(TrainingDataError, match="leak: b lie in both the train and the test part"):
        check(parts)


def copied(parts: Parts, part: str, start: int, rows: int) -> Parts:
    """``rows`` rows of the training part's group b over those of a part, from ``start`` on."""
    values = parts[part].rows.copy()
    values[start : start + rows] = parts["train"].rows[44 : 44 + rows]
    return {**parts, part: replace(parts[part], rows=values)}


@pytest.mark.parametrize("part", ["validation", "test"])
@pytest.mark.parametrize("rows", [8, 30])
def test_a_run_under_two_names_is_a_leak(parts: Parts, part: str, rows: int) -> None:
    group = {"validation": "e", "test": "g"}[part]
    with pytest.raises(TrainingDataError, match=rf"both sides of a split: b \(train\) and {group}"):
        check(copied(parts, part, 5, rows))


def test_a_copy_is_seen_in_columns_that_are_not_fitted_to(parts: Parts) -> None:
    with pytest.raises(TrainingDataError, match="both sides of a split"):
        check(copied(parts, "test", 0, 40), ["hit_rate"])


def test_few_equal_rows_are_no_leak(parts: Parts) -> None:
    check(copied(parts, "test", 5, 7))


def test_a_small_group_is_compared_as_a_whole(parts: Parts) -> None:
    small = parts["train"].take(np.arange(160) < 3)
    small = replace(small, groups=np.array(["z"] * 3))
    test = parts["test"]
    train = parts["train"]
    parts["train"] = Examples(
        train.names,
        np.concatenate([train.rows, test.rows[:3]]),
        np.concatenate([train.labels, test.labels[:3]]),
        np.concatenate([train.weights, test.weights[:3]]),
        np.concatenate([train.groups, ["y"] * 3]),
    )
    parts["test"] = replace(test.take(np.arange(3)), groups=small.groups)
    with pytest.raises(TrainingDataError, match=r"y \(train\) and z \(test\)"):
        check(parts)


def test_columns_that_hardly_vary_are_no_leak(parts: Parts) -> None:
    names = ("last_replaced", "capacity_per_halo")
    discrete = {
        name: replace(
            select(examples, names),
            rows=np.repeat([[0.0, 0.25], [1.0, 0.25]], len(examples) // 2, axis=0),
        )
        for name, examples in parts.items()
    }
    assert check(discrete).constant == ("capacity_per_halo",)


def test_parts_that_do_not_fit_each_other(parts: Parts) -> None:
    with pytest.raises(TrainingDataError, match="found train, test"):
        check({name: parts[name] for name in ("train", "test")})
    other = {**parts, "test": select(parts["test"], ["hit_rate"])}
    with pytest.raises(TrainingDataError, match="the test part has the columns hit_rate, the"):
        check(other)
    ragged = {**parts, "test": replace(parts["test"], weights=np.ones(3))}
    with pytest.raises(TrainingDataError, match=r"its weights are of shape \(3,\)"):
        check(ragged)


def test_a_test_part_may_be_missing(parts: Parts) -> None:
    assert set(check({n: parts[n] for n in ("train", "validation")}).balance) == {
        "train", "validation",
    }  # fmt: skip


def test_select_takes_columns_in_order(parts: Parts) -> None:
    found = select(parts["test"], ["progress", "hit_rate"])
    assert found.names == ("progress", "hit_rate")
    at = parts["test"].names.index("progress")
    assert np.array_equal(found.rows[:, 0], parts["test"].rows[:, at])
    with pytest.raises(UnknownNameError, match=r"no column is named hits; there are hit_rate,"):
        select(parts["test"], ["hits"])
    for wrong in ([], ["hit_rate", "hit_rate"]):
        with pytest.raises(TrainingDataError, match="each once"):
            select(parts["test"], wrong)


@pytest.mark.parametrize("estimator", ["stump", "logistic", "xgboost"])
def test_all_estimators_have_the_one_error(
    fit_stump: Callable[..., object], material: object, estimator: str
) -> None:
    one = replace(
        material,  # type: ignore[type-var]
        parts={
            name: replace(examples, labels=np.zeros(len(examples), np.int8))
            for name, examples in material.parts.items()  # type: ignore[attr-defined]
        },
    )
    with pytest.raises(TrainingDataError, match="one class only"):
        fit_stump(estimator, estimator, material=one)
