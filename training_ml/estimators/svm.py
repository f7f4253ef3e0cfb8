"""``svm``: support vector machines, linear or with radial basis functions, calibrated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from rudder.errors import ModelError
from rudder.model import Estimator, Examples, Rows, Told, Trial

from . import archive
from .linear import Linear, Standard, array
from .weighing import (
    Values,
    choose,
    log_loss,
    one_thread,
    positive,
    sklearn_seed,
    weigh,
    within,
)

PATH = (0.1, 1.0, 10.0)


class Svm(Estimator):
    """A support vector machine whose distances become probabilities by a sigmoid.

    The sigmoid is fitted to distances of rows whose groups the machine behind them never saw: those
    of the training part out of fold, by groups, and those of the validation part.

    Args:
        kernel: ``rbf`` or ``linear``.
        c: inverse strength of the penalty, above 0. None = the best of :data:`PATH` on the
            validation part.
        gamma: of ``rbf``, above 0, on standardised columns. None = 1 / columns.
        folds: of the calibration, from 2; as many as there are groups at most.
        rows: to fit to at most, drawn with the seed. Every row may become a support vector, so this
            bounds the seconds of a fit, the size of the model and the seconds of an answer.
        balance: both classes weigh the same in sum.

    Raises:
        ValueError: a value out of range.
    """

    files = ("svm.skops",)
    libraries = ("scikit-learn", "skops")

    def __init__(
        self,
        kernel: str = "rbf",
        c: float | None = None,
        gamma: float | None = None,
        folds: int = 4,
        rows: int = 4000,
        balance: bool = True,
    ) -> None:
        if kernel not in ("rbf", "linear"):
            raise ValueError(f"kernel must be rbf or linear, found {kernel!r}")
        positive(**{k: v for k, v in {"c": c, "gamma": gamma}.items() if v is not None})
        within(2, 20, folds=folds)
        within(20, 20_000, rows=rows)
        self.kernel = kernel
        self.c = c
        self.gamma = gamma
        self.folds = folds
        self.rows = rows
        self.balance = balance

    def fit(
        self, examples: Examples, validation: Examples, seed: int, progress: Told
    ) -> dict[str, Any]:
        examples = self._drawn(examples, seed)
        weights, judged = weigh(examples, self.balance), weigh(validation, self.balance)
        scaler = StandardScaler().fit(examples.rows)
        rows, held_out = scaler.transform(examples.rows), scaler.transform(validation.rows)

        def fitted(c: float, chosen: Any = slice(None)) -> Any:
            machine = self._machine(c, rows.shape[1], seed)
            return machine.fit(rows[chosen], examples.labels[chosen], weights[chosen])

        def loss(machine: Any) -> float:
            distances = machine.decision_function(held_out)
            sigmoid = _sigmoid(distances, validation.labels, judged)
            return log_loss(validation.labels, _p(sigmoid, distances), judged)

        with one_thread():
            best = choose("c", PATH if self.c is None else (self.c,), fitted, loss, progress)
            distances, seen = np.empty(len(examples)), np.zeros(len(examples), bool)
            for number, (learned, left) in enumerate(self._splits(examples, seed)):
                progress(f"calibrating, fold {number + 1}", 0.9)
                distances[left] = fitted(best.value, learned).decision_function(rows[left])
                seen[left] = True
            calibration = _sigmoid(
                np.concatenate([distances[seen], best.model.decision_function(held_out)]),
                np.concatenate([examples.labels[seen], validation.labels]),
                np.concatenate([weights[seen], judged]),
            )
        self._use(Path(self.files[0]), scaler, best.model, calibration)
        return {
            "c": best.value,
            "rows": len(examples),
            "support_vectors": int(best.model.n_support_.sum()) if self.kernel == "rbf" else None,
            "validation_loss": log_loss(validation.labels, self.predict(validation.rows), judged),
        }

    def predict(self, rows: Rows) -> Values:
        if self.kernel == "linear":
            with one_thread(rows):
                distances = self._linear(rows)
        else:
            distances = self._distances(rows)
        p: Values = expit(self._slope * distances + self._offset)
        return p

    def save(self, folder: Path) -> None:
        parts = {"scaler": self._scaler, "machine": self._model, "calibration": self._calibration}
        archive.save(parts, folder / self.files[0])

    def restore(self, folder: Path, columns: int) -> None:
        path = folder / self.files[0]
        kind = SVC if self.kernel == "rbf" else LinearSVC
        parts = archive.read(path, {StandardScaler, kind, LogisticRegression})
        scaler = archive.part(path, parts, "scaler", StandardScaler, columns)
        machine = archive.part(path, parts, "machine", kind, columns)
        self._use(
            path, scaler, machine, archive.part(path, parts, "calibration", LogisticRegression, 1)
        )

    def _drawn(self, examples: Examples, seed: int) -> Examples:
        if len(examples) <= self.rows:
            return examples
        drawn = np.random.default_rng(sklearn_seed(seed)).permutation(len(examples))[: self.rows]
        # Both classes are sure to stay: the first of each is swapped in.
        firsts = [int(np.argmax(examples.labels == which)) for which in (0, 1)]
        return examples.take(np.union1d(drawn[: self.rows - 2], firsts))

    def _machine(self, c: float, columns: int, seed: int) -> Any:
        if self.kernel == "linear":
            return LinearSVC(C=c, dual=False, max_iter=5000, random_state=sklearn_seed(seed))
        gamma = 1.0 / columns if self.gamma is None else self.gamma
        # The seed has no effect, but without one a number is drawn from NumPy's generator.
        return SVC(C=c, kernel="rbf", gamma=gamma, cache_size=100, random_state=sklearn_seed(seed))

    def _splits(self, examples: Examples, seed: int) -> list[tuple[Any, Any]]:
        """Folds by groups whose larger sides hold both classes; none of a single group."""
        counts = [len(np.unique(examples.groups))]
        counts += [int((examples.labels == which).sum()) for which in (0, 1)]
        if (folds := min(self.folds, *counts)) < 2:
            return []
        cut = StratifiedGroupKFold(folds, shuffle=True, random_state=sklearn_seed(seed))
        return [
            (learned, left)
            for learned, left in cut.split(examples.rows, examples.labels, examples.groups)
            if len(left) and len(np.unique(examples.labels[learned])) == 2
        ]

    def _use(self, path: Path, scaler: Any, machine: Any, calibration: Any) -> None:
        self._scaler, self._model, self._calibration = scaler, machine, calibration
        self._slope = float(array(path, calibration, "coef_", (1, 1))[0, 0])
        self._offset = float(array(path, calibration, "intercept_", (1,))[0])
        if self.kernel == "linear":
            self._linear = Linear.of(path, scaler, machine)
            return
        self._standard = Standard.of(path, scaler)
        count, columns = len(getattr(machine, "support_", ())), scaler.n_features_in_
        self._vectors = array(path, machine, "support_vectors_", (count, columns))
        self._dual = array(path, machine, "dual_coef_", (1, count))[0]
        self._intercept = float(array(path, machine, "intercept_", (1,))[0])
        if machine.kernel != "rbf" or not isinstance(machine.gamma, float) or machine.gamma <= 0:
            raise ModelError(f"{path} holds no machine with radial basis functions; fit it anew")
        self._gamma = machine.gamma

    def _distances(self, rows: Rows) -> Values:
        """What ``SVC.decision_function`` gives, in the calling thread alone.

        A product with this many vectors is large enough for a library of linear algebra to wake
        other threads, which training has use for; einsum calls none.
        """
        found = np.empty(len(rows))
        for at, row in enumerate(self._standard(rows)):
            apart = self._vectors - row
            near = np.exp(-self._gamma * np.einsum("ij,ij->i", apart, apart))
            found[at] = np.einsum("i,i->", near, self._dual)
        return found + self._intercept

    @classmethod
    def suggest(cls, trial: Trial) -> dict[str, Any]:
        kernel = trial.suggest_categorical("kernel", ("rbf", "linear"))
        found = {"kernel": kernel, "c": trial.suggest_float("c", 1e-2, 1e2, log=True)}
        if kernel == "rbf":
            found["gamma"] = trial.suggest_float("gamma", 1e-3, 1.0, log=True)
        return found


def _sigmoid(distances: Values, labels: Any, weights: Values) -> LogisticRegression:
    """Two parameters, slightly pulled in: distances may separate the classes without error."""
    return LogisticRegression(C=100.0).fit(distances[:, None], labels, weights)


def _p(sigmoid: LogisticRegression, distances: Values) -> Values:
    p: Values = sigmoid.predict_proba(distances[:, None])[:, 1]
    return p
