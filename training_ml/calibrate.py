"""Fits a decision threshold for a controller that says p(replace) to labelled situations.

For language models: what is shown and how they answer stays as it is, only the p(replace) from
which the answer counts as *replace* is fitted. With it a controller is no longer zero-shot.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rudder.errors import TrainingDataError, UsageError
from rudder.model import Told
from rudder.model.calibration import Calibration
from rudder.observation import Observation, Task
from rudder.registries import CONTROLLERS
from rudder.spec import Spec
from rudder.steering import build_controller, rebuild
from rudder.steering.resolve import own_params

from .checks import TEST, TRAIN, VALIDATION
from .collection import Collection
from .examples import ExampleTable
from .material import training_of

FITTED, JUDGED = "fitted", "judged"
LEAST = 10
"""Situations of either label, to fit to and to judge by."""


class Situation(NamedTuple):
    """An observation and what would have been right.

    Attributes:
        use: ``fitted`` or ``judged``.
        task: of the run that it comes from.
        observation: as the run's controller was shown it.
        replace: the label.
    """

    use: str
    task: Task
    observation: Observation
    replace: bool


def situations(
    collection: Collection, table: ExampleTable, count: int, seed: int
) -> list[Situation]:
    """Situations from labelled questions, as many of either label, drawn with a seed.

    Those to fit to come from the training and validation parts, those to judge by from the test
    part, of which as many are taken: no access trace is in both.

    Args:
        count: of either use.

    Raises:
        TrainingDataError: fewer than :data:`LEAST` of one label.
    """
    draw = np.random.default_rng(seed)
    part, label = table.column("part"), table.column("label")
    chosen: list[tuple[str, int]] = []
    for use, parts in ((FITTED, (TRAIN, VALIDATION)), (JUDGED, (TEST,))):
        for value in (0, 1):
            rows = np.flatnonzero(np.isin(part, parts) & (label == value))
            if len(rows) < LEAST:
                raise TrainingDataError(
                    f"the {' and '.join(parts)} part has {len(rows)} questions labelled "
                    f"{'replace' if value else 'keep'}, calibrating needs {LEAST}; collect more "
                    "seeds or other scenarios"
                )
            take = min(max(count // 2, LEAST), len(rows))
            chosen += [(use, int(row)) for row in draw.choice(rows, take, replace=False)]
    return _looked_up(collection, table, chosen)


def _looked_up(
    collection: Collection, table: ExampleTable, chosen: Sequence[tuple[str, int]]
) -> list[Situation]:
    columns = {name: table.column(name) for name in ("run", "rank", "question", "label")}
    wanted: dict[str, dict[tuple[int, int], tuple[str, bool]]] = {}
    for use, row in chosen:
        key = (int(columns["rank"][row]), int(columns["question"][row]))
        wanted.setdefault(str(columns["run"][row]), {})[key] = use, bool(columns["label"][row])
    found = []
    for run in collection.runs:
        keys = wanted.get(run.id, {})
        for asked in rebuild(collection.run_dir(run)) if keys else ():
            if (hit := keys.get((asked.rank, asked.observation.index))) is not None:
                task = Task(asked.observation.facts, run.seed, asked.rank)
                found.append(Situation(hit[0], task, asked.observation, hit[1]))
    return found


class Asked(NamedTuple):
    """What a controller said of situations.

    Attributes:
        p: p(replace), float64 ``[situations]``.
        identity: what shaped it.
    """

    p: npt.NDArray[np.float64]
    identity: Mapping[str, Any]


def ask(controller: Spec, given: Sequence[Situation], progress: Told) -> Asked:
    """Ask a controller, each situation by itself: it remembers nothing from one to the next.

    Raises:
        UsageError: it says no p(replace), or not what shaped it.
        ControllerError: it cannot be reset.
    """
    spec = own_params(CONTROLLERS.resolve(controller))
    loaded = build_controller(spec).load(progress)
    found: list[float] = []
    identity: Mapping[str, Any] | None = None
    for number, situation in enumerate(given):
        one = build_controller(spec)
        one.adopt(loaded)
        one.reset(situation.task)
        decision = one.decide(situation.observation)
        one.close()
        if decision.outcome != "valid":
            raise UsageError(f"{spec.name} did not answer: {decision.explanation}")
        told = (decision.details or {}).get("identity")
        if decision.p_replace is None or told is None:
            raise UsageError(
                f"{spec.name} says no p(replace), or not what shapes it: only agents that score "
                "their answers can be calibrated (mode=score)"
            )
        identity = told
        found.append(decision.p_replace)
        progress("asking", (number + 1) / len(given))
    return Asked(np.array(found), identity or {})


def calibrate(
    name: str,
    controller: Spec,
    collection: Collection,
    table: ExampleTable,
    progress: Told,
    *,
    count: int = 60,
    seed: int = 0,
) -> Calibration:
    """Fit a threshold: the one with the best balanced accuracy, in the middle of its range.

    Raises:
        TrainingDataError: see :func:`situations`.
        UsageError, ControllerError: see :func:`ask`; or the controller has a threshold already.
    """
    params = CONTROLLERS.resolve(controller).params
    if params.get("calibration") or params.get("threshold") is not None:
        raise UsageError(f"{controller} has a threshold already; calibrate it without")
    given = situations(collection, table, count, seed)
    asked = ask(controller, given, progress)
    replace = np.array([s.replace for s in given])
    fit = np.array([s.use == FITTED for s in given])
    threshold = best_threshold(asked.p[fit], replace[fit])
    judged, right = asked.p[~fit], replace[~fit]
    return Calibration(
        name=name,
        controller=str(controller),
        identity=dict(asked.identity),
        threshold=threshold,
        training=training_of(collection, table).model_copy(
            update={"examples": {FITTED: int(fit.sum()), JUDGED: int((~fit).sum())}}
        ),
        metrics={
            "fitted_balanced_accuracy": balanced_accuracy(asked.p[fit] >= threshold, replace[fit]),
            "balanced_accuracy": balanced_accuracy(judged >= threshold, right),
            "balanced_accuracy_without": balanced_accuracy(judged >= 0.5, right),
            "replace_share": float((judged >= threshold).mean()),
            "replace_share_without": float((judged >= 0.5).mean()),
            "auc": auc(judged, right),
        },
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )


def best_threshold(p: npt.NDArray[np.float64], replace: npt.NDArray[np.bool_]) -> float:
    """The threshold with the best balanced accuracy; of a range of equal ones, its middle."""
    edges = np.concatenate([[0.0], np.unique(p), [1.0]])
    middles = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
    scores = [balanced_accuracy(p >= middle, replace) for middle in middles]
    best = [m for m, score in zip(middles, scores, strict=True) if score == max(scores)]
    return float(best[len(best) // 2])


def balanced_accuracy(said: npt.NDArray[np.bool_], replace: npt.NDArray[np.bool_]) -> float:
    """Mean share right over both labels."""
    return float((said[replace].mean() + (~said[~replace]).mean()) / 2)


def auc(p: npt.NDArray[np.float64], replace: npt.NDArray[np.bool_]) -> float:
    """Area under the ROC curve: how well p(replace) sorts, whatever the threshold."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(replace, p))
