"""Classifiers: a fitted model says how likely *replace* is right."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rudder import Capabilities, Controller, Decision, Observation, Past, Task
from rudder.errors import ControllerError, ModelError, SpecError
from rudder.model import FittedModel, find_model

if TYPE_CHECKING:
    from rudder.cluster.doctor import Check

_Vector = npt.NDArray[np.float64]
_REMEMBERED = 64
"""Questions whose vectors are kept for adaptation: more than a history spans."""


class Classifier(Controller):
    """Replaces when the model's p(replace) reaches a threshold.

    An observation unlike those that the model was fitted to is answered all the same, and marked
    (``Decision.in_support``).

    Args:
        model: directory of a fitted model, or the name of one.
        threshold: p(replace) from which it replaces, 0..1; None = as stored with the model.
        adapt: go on learning during the run, from replacements whose reward is known: one that
            saved bytes is an example of *replace*, one that cost some an example of *keep*. The
            paper's fine-tuning hook; for models that can (``mlp``, ``tabnet``).

    Raises:
        SpecError: no model is named, or the threshold lies outside 0..1.
    """

    tags: Capabilities = Capabilities(fitted_model=True)

    def __init__(self, model: str, threshold: float | None = None, adapt: bool = False) -> None:
        if not isinstance(model, str) or not model:
            raise SpecError(f"model must name a fitted model or its directory, found {model!r}")
        number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
        if threshold is not None and not (number and 0 <= threshold <= 1):
            raise SpecError(f"threshold must lie in 0..1 or be null, found {threshold!r}")
        self.model = model
        self.threshold = threshold
        self.adapt = adapt
        self._fitted: FittedModel | None = None
        self._limit = 0.5
        self._asked: deque[tuple[int, _Vector]] = deque(maxlen=_REMEMBERED)
        self._learnt_until = -1

    def _reset(self, task: Task) -> None:
        self._fitted = FittedModel.load(find_model(self.model))
        if self.adapt and not self._fitted.estimator.adaptable:
            raise ControllerError(
                f"adapt=true: model {self.model!r} is of the kind "
                f"{self._fitted.manifest.spec.name!r}, which cannot go on learning; mlp and tabnet "
                "can"
            )
        stored = self._fitted.manifest.threshold
        self._limit = stored if self.threshold is None else float(self.threshold)
        self._asked.clear()
        self._learnt_until = -1

    def _decide(self, observation: Observation) -> Decision:
        if self._fitted is None:
            raise ControllerError("asked before it was reset")
        vector = self._fitted.vector(observation)
        if self.adapt:
            self._learn(self._fitted, observation.history)
            self._asked.append((observation.minibatch, vector))
        p_replace = self._fitted.p_replace(vector)
        inside = self._fitted.support.inside(vector)
        return Decision(
            replace=p_replace >= self._limit,
            p_replace=p_replace,
            in_support=inside,
            explanation=self._told(self._fitted, p_replace, vector, inside),
        )

    def _close(self) -> None:
        self._fitted = None

    def _needs(self) -> Iterator[Check]:
        from rudder.cluster.doctor import Check

        try:
            manifest = FittedModel.load(find_model(self.model)).manifest
        except ModelError as error:
            yield Check(f"model {self.model}", False, str(error))
        else:
            yield Check(f"model {self.model}", True, f"{manifest.spec.name}, can be read")

    def _told(self, fitted: FittedModel, p_replace: float, vector: _Vector, inside: bool) -> str:
        told = f"p(replace) {p_replace:.3f} against {self._limit:g}"
        if inside:
            return told
        beyond = ", ".join(fitted.support.beyond(vector)) or "the combination of its columns"
        return f"{told}; unlike the training data: {beyond}"

    def _learn(self, fitted: FittedModel, history: tuple[Past, ...]) -> None:
        """From each settled replacement once, in order."""
        for past in history:
            if not past.window:
                if past.decision.replace:  # later ones wait, so that none is passed over
                    return
                continue
            if past.minibatch <= self._learnt_until:
                continue
            self._learnt_until = past.minibatch
            vector = self._shown_before(past.minibatch)
            if past.decision.replace and past.reward and vector is not None:
                label = np.array([past.reward > 0], np.int8)
                fitted.estimator.adapt(vector[None, :], label)

    def _shown_before(self, minibatch: int) -> _Vector | None:
        """What was shown when the decision was asked for that applied at a minibatch."""
        for asked_at, vector in reversed(self._asked):
            if asked_at <= minibatch:
                return vector
        return None
