"""``forest``: a random forest, kept small enough to answer beside training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.tree._tree import Tree

from rudder.errors import ModelError
from rudder.model import Estimator, Examples, Rows, Told, Trial

from . import archive
from .weighing import Values, choose, log_loss, sklearn_seed, weigh, within

DEPTHS = (3, 5, 8)


class Forest(Estimator):
    """A random forest; p(replace) is the mean of its trees' leaves.

    Args:
        trees: how many.
        depth: of a tree at most. None = the best of :data:`DEPTHS` on the validation part.
        leaf: examples in a leaf at least.
        columns: share of the columns that a split may choose from, above 0.
        balance: both classes weigh the same in sum.

    Raises:
        ValueError: a value out of range.
    """

    files = ("forest.skops",)
    libraries = ("scikit-learn", "skops")

    def __init__(
        self,
        trees: int = 40,
        depth: int | None = None,
        leaf: int = 10,
        columns: float = 0.25,
        balance: bool = True,
    ) -> None:
        within(1, 500, trees=trees)
        within(1, 12, depth=1 if depth is None else depth)
        within(1, 10_000, leaf=leaf)
        within(0.01, 1.0, columns=columns)
        self.trees = trees
        self.depth = depth
        self.leaf = leaf
        self.columns = columns
        self.balance = balance

    def fit(
        self, examples: Examples, validation: Examples, seed: int, progress: Told
    ) -> dict[str, Any]:
        weights, judged = weigh(examples, self.balance), weigh(validation, self.balance)

        def fitted(depth: int) -> RandomForestClassifier:
            return RandomForestClassifier(
                self.trees,
                max_depth=depth,
                min_samples_leaf=self.leaf,
                max_features=self.columns,
                random_state=sklearn_seed(seed),
            ).fit(examples.rows, examples.labels, weights)

        def loss(model: RandomForestClassifier) -> float:
            return log_loss(validation.labels, model.predict_proba(validation.rows)[:, 1], judged)

        depths = DEPTHS if self.depth is None else (self.depth,)
        best = choose("depth", depths, fitted, loss, progress)
        self._use(Path(self.files[0]), best.model)
        return {"depth": best.value, "nodes": len(self._left), "validation_loss": best.loss}

    def predict(self, rows: Rows) -> Values:
        # As the trees were grown: values in single precision, against thresholds in double.
        values = rows.astype(np.float32)
        row = np.arange(len(rows))[:, None]
        at = np.broadcast_to(self._roots, (len(rows), len(self._roots)))
        for _ in range(self._deepest):
            left = values[row, self._column[at]] <= self._threshold[at]
            at = np.where(left, self._left[at], self._right[at])
        p: Values = self._value[at].mean(axis=1)
        return p

    def save(self, folder: Path) -> None:
        archive.save({"forest": self._model}, folder / self.files[0])

    def restore(self, folder: Path, columns: int) -> None:
        path = folder / self.files[0]
        parts = archive.read(path, {RandomForestClassifier, DecisionTreeClassifier, Tree})
        self._use(path, archive.part(path, parts, "forest", RandomForestClassifier, columns))

    def _use(self, path: Path, model: RandomForestClassifier) -> None:
        """Lay all trees into one set of arrays, so that a row goes down all of them in step."""
        self._model = model
        try:
            trees = [member.tree_ for member in model.estimators_]
            sizes = [len(tree.children_left) for tree in trees]
            self._roots = np.cumsum([0, *sizes[:-1]])
            own = np.arange(sum(sizes))
            first = np.repeat(self._roots, sizes)
            leaf = np.concatenate([tree.children_left for tree in trees]) < 0
            left, right = (
                np.where(leaf, own, first + np.concatenate([getattr(t, side) for t in trees]))
                for side in ("children_left", "children_right")
            )
            self._left, self._right = left, right
            self._column = np.where(leaf, 0, np.concatenate([tree.feature for tree in trees]))
            self._threshold = np.concatenate([tree.threshold for tree in trees])
            self._value = np.concatenate([tree.value[:, 0, 1] for tree in trees])
            self._deepest = max(tree.max_depth for tree in trees)
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise ModelError(f"{path} holds no fitted trees ({error}); fit it anew") from error
        end = first + np.repeat(sizes, sizes)
        # scikit-learn follows these without looking; a child before its parent would be a loop.
        sound = (
            (((left > own) & (left < end) & (right > own) & (right < end)) | leaf)
            & (self._column >= 0)
            & (self._column < model.n_features_in_)
        )
        if not sound.all() or not np.isfinite(self._value).all():
            raise ModelError(f"{path} holds trees whose branches lead nowhere; fit it anew")

    @classmethod
    def suggest(cls, trial: Trial) -> dict[str, Any]:
        return {
            "trees": trial.suggest_int("trees", 20, 60),
            "depth": trial.suggest_int("depth", 2, 8),
            "leaf": trial.suggest_int("leaf", 5, 50, log=True),
            "columns": trial.suggest_float("columns", 0.1, 0.8),
        }
