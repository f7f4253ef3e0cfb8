"""Search for hyperparameters: Optuna over grouped folds of the training part."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import TrainingDataError, UsageError
from rudder.model import Estimator, Examples, Told
from rudder.registries import ESTIMATORS
from rudder.spec import Spec

from .checks import TRAIN, VALIDATION, Parts
from .fit import probabilities

FOLDS = 3


@dataclass(frozen=True)
class Searched:
    """What a search came to.

    Attributes:
        spec: the estimator with the best parameters found, which may be those that it had.
        trials: how many others were tried.
        score: mean AUC over the folds, examples weighted, of ``spec``.
        start: the same of the parameters before the search.
    """

    spec: Spec
    trials: int
    score: float
    start: float

    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "trials": self.trials,
            "folds": FOLDS,
            "auc": round(self.score, 6),
            "auc_before": round(self.start, 6),
        }


def search(estimator: Spec, parts: Parts, trials: int, seed: int, progress: Told) -> Searched:
    """The best of the given parameters and ``trials`` suggestions.

    Every candidate is fitted on all folds of the training part but one, stopped early by the
    validation part, and judged by its AUC on the fold left out; folds hold whole groups. The test
    part is not looked at. Parameters that the user wrote stay as they are.

    Args:
        parts: checked, with the columns to fit to.
        trials: suggestions to try, at least 1.

    Raises:
        UsageError: the estimator has nothing to search for.
        TrainingDataError: too few groups for folds with both classes.
    """
    given = Spec.parse(estimator)
    full = ESTIMATORS.resolve(given)
    target = ESTIMATORS.target(full.name)
    suggest = getattr(target, "suggest", Estimator.suggest)
    folds = grouped_folds(parts[TRAIN])

    import optuna

    def spec_of(suggested: Mapping[str, Any]) -> Spec:
        return Spec(full.name, {**full.params, **suggested, **given.params})

    done = 0

    def score(spec: Spec) -> float:
        nonlocal done
        found: list[float] = []
        for inside, outside in folds:
            share = (done + len(found) / len(folds)) / (trials + 1)
            progress(f"search {full.name}", share)
            found.append(_score(spec, parts, inside, outside, seed))
        done += 1
        return float(np.mean(found))

    def objective(trial: Any) -> float:
        suggested = suggest(trial)
        if not set(suggested) - set(given.params):
            raise UsageError(
                f"estimator {full.name!r} has no parameters to search for; leave --search out"
            )
        spec = spec_of(suggested)
        trial.set_user_attr("spec", spec.to_json())
        return score(spec)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    start = score(full)
    study.optimize(objective, n_trials=trials)
    progress(f"search {full.name}", 1.0)
    best = study.best_trial
    if best.value is None or best.value <= start:
        return Searched(full, trials, start, start)
    return Searched(Spec.from_json(best.user_attrs["spec"]), trials, float(best.value), start)


Fold = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]


def grouped_folds(train: Examples) -> list[Fold]:
    """Up to :data:`FOLDS` pairs of indices, inside and outside, that share no group.

    Folds without both classes on both sides are left out.

    Raises:
        TrainingDataError: none is left.
    """
    from sklearn.model_selection import GroupKFold

    groups = len(np.unique(train.groups))
    folds: list[Fold] = []
    if groups >= 2:
        split = GroupKFold(min(FOLDS, groups)).split(train.rows, train.labels, train.groups)
        folds = [
            (inside, outside)
            for inside, outside in split
            if all(len(np.unique(train.labels[side])) == 2 for side in (inside, outside))
        ]
    if not folds:
        raise TrainingDataError(
            f"a search needs groups of both classes on both sides of a split, found {groups} "
            f"groups in the {len(train)} rows of the {TRAIN} part; collect more seeds, or leave "
            "--search out"
        )
    return folds


def _score(
    spec: Spec,
    parts: Parts,
    inside: npt.NDArray[np.intp],
    outside: npt.NDArray[np.intp],
    seed: int,
) -> float:
    from sklearn.metrics import roc_auc_score

    built: Estimator = ESTIMATORS.build(spec)
    with warnings.catch_warnings():
        # A candidate that does not converge loses by its score.
        warnings.simplefilter("ignore")
        built.fit(parts[TRAIN].take(inside), parts[VALIDATION], seed, _silent)
    held_out = parts[TRAIN].take(outside)
    p = probabilities(built, held_out.rows)
    return float(roc_auc_score(held_out.labels, p, sample_weight=held_out.weights))


def _silent(what: str, share: float) -> None:
    """Progress of one fit among many is not told."""
