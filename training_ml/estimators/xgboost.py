"""``xgboost``: gradient-boosted trees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import xgboost as xgb

from rudder.errors import ModelError
from rudder.model import Estimator, Examples, Rows, Told, Trial

from .weighing import Values, log_loss, positive, weigh, within

OBJECTIVE = "binary:logistic"


class XGBoost(Estimator):
    """Boosted trees; rounds after the best one on the validation part are cut off.

    One thread fits: with more, sums differ in their last digits from run to run.

    Args:
        rounds: trees at most.
        patience: rounds without a better loss on the validation part after which it stops.
        depth: of a tree at most.
        rate: learning rate, above 0, at most 1.
        least: sum of weights that both sides of a split need.
        l2: penalty on the leaves' values.
        sample: share of the examples that a tree sees.
        columns: share of the columns that a tree sees.
        balance: both classes weigh the same in sum.

    Raises:
        ValueError: a value out of range.
    """

    files = ("xgboost.json",)
    libraries = ("xgboost",)

    def __init__(
        self,
        rounds: int = 300,
        patience: int = 25,
        depth: int = 4,
        rate: float = 0.1,
        least: float = 2.0,
        l2: float = 1.0,
        sample: float = 0.8,
        columns: float = 0.8,
        balance: bool = True,
    ) -> None:
        within(1, 5000, rounds=rounds, patience=patience)
        within(1, 12, depth=depth)
        positive(rate=rate)
        within(0.0, 1.0, rate=rate)
        within(0.0, 1e6, least=least, l2=l2)
        within(0.01, 1.0, sample=sample, columns=columns)
        self.rounds = rounds
        self.patience = patience
        self.depth = depth
        self.rate = rate
        self.least = least
        self.l2 = l2
        self.sample = sample
        self.columns = columns
        self.balance = balance

    def fit(
        self, examples: Examples, validation: Examples, seed: int, progress: Told
    ) -> dict[str, Any]:
        judged = weigh(validation, self.balance)
        train = xgb.DMatrix(
            examples.rows, examples.labels, weight=weigh(examples, self.balance), nthread=1
        )
        held_out = xgb.DMatrix(validation.rows, nthread=1)
        params = {
            "objective": OBJECTIVE,
            "tree_method": "hist",
            "max_depth": self.depth,
            "learning_rate": self.rate,
            "min_child_weight": self.least,
            "reg_lambda": self.l2,
            "subsample": self.sample,
            "colsample_bytree": self.columns,
            "seed": seed % 2**31,
            "nthread": 1,
            "verbosity": 0,
        }
        booster = xgb.Booster(params, [train, held_out])
        best, least, done = 0, float("inf"), 0
        while done < self.rounds and done - best < self.patience:
            booster.update(train, done)
            done += 1
            loss = log_loss(validation.labels, _float64(booster.predict(held_out)), judged)
            if loss < least:
                best, least = done, loss
            progress(f"round {done}: validation loss {loss:.4f}", done / self.rounds)
        self._booster = booster[:best]
        self._booster.set_param({"nthread": 1})
        return {"rounds": done, "best_round": best, "validation_loss": least}

    def predict(self, rows: Rows) -> Values:
        return _float64(self._booster.inplace_predict(rows, validate_features=False))

    def save(self, folder: Path) -> None:
        self._booster.save_model(folder / self.files[0])

    def restore(self, folder: Path, columns: int) -> None:
        path = folder / self.files[0]
        try:
            # By the name's ending the library reads JSON; that it is some is checked first.
            learner = json.loads(path.read_bytes())["learner"]
            objective = learner["objective"]["name"]
            booster = xgb.Booster({"nthread": 1}, model_file=path)
            fitted = booster.num_features()
        except (OSError, ValueError, KeyError, TypeError, xgb.core.XGBoostError) as error:
            why = str(error).partition("\n")[0]  # below come frames of C++
            raise ModelError(
                f"{path} is no model that xgboost can read ({type(error).__name__}: {why}); "
                "fit it anew"
            ) from error
        if objective != OBJECTIVE or fitted != columns:
            raise ModelError(
                f"{path} holds a model of {fitted} columns for {objective}, not one of {columns} "
                f"for {OBJECTIVE}; fit it anew"
            )
        self._booster = booster

    @classmethod
    def suggest(cls, trial: Trial) -> dict[str, Any]:
        return {
            "depth": trial.suggest_int("depth", 2, 6),
            "rate": trial.suggest_float("rate", 0.03, 0.3, log=True),
            "least": trial.suggest_float("least", 0.5, 20.0, log=True),
            "l2": trial.suggest_float("l2", 0.1, 30.0, log=True),
            "sample": trial.suggest_float("sample", 0.5, 1.0),
            "columns": trial.suggest_float("columns", 0.4, 1.0),
        }


def _float64(p: Any) -> Values:
    result: Values = np.asarray(p, np.float64)
    return result
