"""``cascade``: a classifier where it knows its way, another controller elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rudder import Capabilities, Controller, Decision, Observation, Task
from rudder.errors import SpecError
from rudder.steering import build_controller


class Cascade(Controller):
    """Asks ``inside``; where the observation lies outside its training support, ``outside``.

    The second controller is asked only then: a language model there costs nothing while the
    classifier knows its way.

    Args:
        inside: spec of a controller with a fitted model.
        outside: spec of any other controller that steers real training.

    Raises:
        SpecError: ``inside`` has no fitted model, or one of them works in a replay only.
        UnknownNameError: no controller of that name.
    """

    tags: Capabilities = Capabilities(fitted_model=True, nested=("inside", "outside"))

    def __init__(self, inside: str = "xgboost", outside: str = "threshold") -> None:
        self._inside = build_controller(inside)
        self._outside = build_controller(outside)
        first, second = self._inside.tags, self._outside.tags
        if not first.fitted_model:
            raise SpecError(
                f"inside = {inside!r} has no fitted model, so it cannot tell when it is out of "
                "its depth; name a classifier, such as xgboost"
            )
        if first.replay_only or second.replay_only:
            raise SpecError(f"{inside!r} and {outside!r} must both be able to steer real training")
        self.tags = dataclasses.replace(
            Cascade.tags,
            stochastic=first.stochastic or second.stochastic,
            repeatable=first.repeatable and second.repeatable,
            llm=first.llm or second.llm,
            own_process=first.own_process or second.own_process,
            shared=first.shared or second.shared,
            reads_seconds=first.reads_seconds or second.reads_seconds,
            deadline_s=max(first.deadline_s, second.deadline_s),
        )

    def _reads(self) -> list[Path]:
        return [*self._inside.reads(), *self._outside.reads()]

    def _load(self, progress: Callable[[str, float], None]) -> tuple[Any, Any]:
        return self._inside.load(progress), self._outside.load(progress)

    def _adopt(self, loaded: tuple[Any, Any]) -> None:
        for controller, own in zip((self._inside, self._outside), loaded, strict=True):
            if own is not None:
                controller.adopt(own)

    def _reset(self, task: Task) -> None:
        self._inside.reset(task)
        self._outside.reset(task)

    def _decide(self, observation: Observation) -> Decision:
        decision = self._inside.decide(observation)
        if decision.outcome == "valid" and decision.in_support is not False:
            return decision
        other = self._outside.decide(observation)
        why = decision.explanation if decision.outcome == "valid" else decision.outcome
        return dataclasses.replace(
            other,
            in_support=False,
            explanation=f"{other.explanation} (outside was asked: {why})",
        )

    def _close(self) -> None:
        self._inside.close()
        self._outside.close()
