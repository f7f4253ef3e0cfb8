"""A search looks at whole groups, never at the test part, and keeps what was better before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rudder_training_ml.search import FOLDS, Searched, grouped_folds, search

from rudder.errors import TrainingDataError, UsageError
from rudder.model import Examples
from rudder.registries import ESTIMATORS
from rudder.spec import Spec

Parts = dict[str, Examples]
Told = list[tuple[str, float]]


def run(parts: Parts, estimator: str, trials: int = 12, seed: int = 0) -> tuple[Searched, Told]:
    told: Told = []
    found = search(
        Spec.parse(estimator), parts, trials, seed, lambda what, share: told.append((what, share))
    )
    return found, told


def test_the_column_that_tells_is_found(stump: Path, parts: Parts) -> None:
    at = parts["train"].names.index("hit_rate")
    assert at == 0  # among 0..3, which the stump looks through
    start = "stump"
    ESTIMATORS._entries["stump"] = replace(
        ESTIMATORS.entry("stump"), params={"column": 3, "steep": 1.0}
    )
    found, told = run(parts, start)
    assert found.spec == Spec("stump", {"column": 0, "steep": 1.0})
    assert found.start < 0.65 < 0.85 < found.score
    assert found.facts() == {
        "trials": 12, "folds": 3,
        "auc": round(found.score, 6), "auc_before": round(found.start, 6),
    }  # fmt: skip
    assert {what for what, _ in told} == {"search stump"}
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_a_search_is_repeatable(stump: Path, parts: Parts) -> None:
    assert run(parts, "xgboost", 3)[0] == run(parts, "xgboost", 3)[0]


def test_the_test_part_is_not_looked_at(stump: Path, parts: Parts) -> None:
    before = run(parts, "stump", 4)[0]
    labels = 1 - parts["test"].labels
    assert run({**parts, "test": replace(parts["test"], labels=labels)}, "stump", 4)[0] == before
    assert run({n: parts[n] for n in ("train", "validation")}, "stump", 4)[0] == before


def test_parameters_that_are_given_stay(stump: Path, parts: Parts) -> None:
    found, _ = run(parts, "stump:steep=2.5", 4)
    assert found.spec.params["steep"] == 2.5
    with pytest.raises(UsageError, match="no parameters to search for"):
        run(parts, "stump:column=1", 2)


def test_what_was_better_before_is_kept(
    stump: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ESTIMATORS.target("stump"),
        "suggest",
        classmethod(lambda cls, trial: {"column": trial.suggest_int("column", 2, 3)}),
    )
    found, _ = run(parts, "stump", 3)
    assert found.spec.params["column"] == 0
    assert found.score == found.start


def test_an_estimator_without_anything_to_search(
    stump: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ESTIMATORS.target("stump"), "suggest", classmethod(lambda cls, trial: {}))
    with pytest.raises(UsageError, match="'stump' has no parameters to search for"):
        run(parts, "stump", 2)


def test_folds_hold_whole_groups(parts: Parts) -> None:
    train = parts["train"]
    folds = grouped_folds(train)
    assert len(folds) == FOLDS
    for inside, outside in folds:
        assert not set(train.groups[inside]) & set(train.groups[outside])
        assert len(inside) + len(outside) == len(train)
    judged = np.concatenate([outside for _, outside in folds])
    assert sorted(judged) == list(range(len(train)))


def test_two_groups_make_two_folds(parts: Parts) -> None:
    train = parts["train"]
    assert len(grouped_folds(train.take(train.groups <= "b"))) == 2


def test_one_group_is_too_few(parts: Parts) -> None:
    train = parts["train"]
    with pytest.raises(TrainingDataError, match="found 1 groups"):
        grouped_folds(train.take(train.groups == "a"))


def test_folds_of_one_class_are_left_out(parts: Parts) -> None:
    train = parts["train"]
    labels = train.labels.copy()
    labels[train.groups == "a"] = 0
    kept = grouped_folds(replace(train, labels=labels))
    for inside, outside in kept:
        assert len(np.unique(labels[inside])) == len(np.unique(labels[outside])) == 2
    everywhere = np.where(np.isin(train.groups, ["a", "b"]), 0, 1).astype(np.int8)
    two = train.take(np.isin(train.groups, ["a", "c"]))
    with pytest.raises(TrainingDataError, match="both classes"):
        grouped_folds(replace(two, labels=everywhere[np.isin(train.groups, ["a", "c"])]))


def test_the_search_is_told_in_the_manifest(fit_stump: Callable[..., object], parts: Parts) -> None:
    found, _ = run(parts, "stump", 2)
    fitted = fit_stump(estimator=str(found.spec), search=found.facts())
    assert fitted.manifest.fitted["search"] == found.facts()  # type: ignore[attr-defined]
