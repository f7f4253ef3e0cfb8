"""``logistic``: logistic regression on standardised columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from rudder.model import Estimator, Examples, Rows, Told, Trial

from . import archive
from .linear import Linear
from .weighing import Values, choose, log_loss, one_thread, positive, weigh

PATH = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)


class Logistic(Estimator):
    """Logistic regression with an L2 penalty.

    Args:
        c: inverse strength of the penalty, above 0. None = the best of :data:`PATH` on the
            validation part.
        balance: both classes weigh the same in sum.

    Raises:
        ValueError: a value out of range.
    """

    files = ("logistic.skops",)
    libraries = ("scikit-learn", "skops")

    def __init__(self, c: float | None = None, balance: bool = True) -> None:
        if c is not None:
            positive(c=c)
        self.c = c
        self.balance = balance

    def fit(
        self, examples: Examples, validation: Examples, seed: int, progress: Told
    ) -> dict[str, Any]:
        weights, judged = weigh(examples, self.balance), weigh(validation, self.balance)
        scaler = StandardScaler().fit(examples.rows)
        rows, held_out = scaler.transform(examples.rows), scaler.transform(validation.rows)

        def fitted(c: float) -> LogisticRegression:
            return LogisticRegression(C=c, max_iter=1000).fit(rows, examples.labels, weights)

        def loss(model: LogisticRegression) -> float:
            return log_loss(validation.labels, model.predict_proba(held_out)[:, 1], judged)

        with one_thread():
            best = choose("c", PATH if self.c is None else (self.c,), fitted, loss, progress)
        self._use(Path(self.files[0]), scaler, best.model)
        return {"c": best.value, "validation_loss": best.loss}

    def predict(self, rows: Rows) -> Values:
        with one_thread(rows):
            p: Values = expit(self._linear(rows))
        return p

    def save(self, folder: Path) -> None:
        archive.save({"scaler": self._scaler, "model": self._model}, folder / self.files[0])

    def restore(self, folder: Path, columns: int) -> None:
        path = folder / self.files[0]
        parts = archive.read(path, {StandardScaler, LogisticRegression})
        scaler = archive.part(path, parts, "scaler", StandardScaler, columns)
        model = archive.part(path, parts, "model", LogisticRegression, columns)
        self._use(path, scaler, model)

    def _use(self, path: Path, scaler: StandardScaler, model: LogisticRegression) -> None:
        self._scaler, self._model = scaler, model
        self._linear = Linear.of(path, scaler, model)

    @classmethod
    def suggest(cls, trial: Trial) -> dict[str, Any]:
        return {"c": trial.suggest_float("c", 1e-4, 1e3, log=True)}
