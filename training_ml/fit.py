"""Fitting one estimator: from checked examples to a model's directory, judged on held-out runs."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import ModelError, TrainingDataError
from rudder.model import (
    Column,
    Estimator,
    Examples,
    FittedModel,
    ModelManifest,
    Support,
    Told,
    Training,
)
from rudder.observation import FEATURES
from rudder.observation import SCHEMA_VERSION as OBSERVATION_SCHEMA
from rudder.plain import plain
from rudder.registries import ESTIMATORS
from rudder.spec import Spec

from . import store
from .checks import TEST, TRAIN, VALIDATION, Checked, check, select
from .judging import SingleRule, best_single_rule, best_threshold, judge, majority

SECONDS = ("fetch_time_share", "stall_time_share")
"""Columns that a model leaves out unless they are named: sampled traces hold no seconds, and a
classifier that reads none decides in a replay exactly as it did in the run."""
_PROVEN = 256
"""Rows on which a model that was read back must answer as the one that was fitted."""

Floats = npt.NDArray[np.float64]


def default_columns() -> tuple[str, ...]:
    """All features of an observation but those made of seconds."""
    return tuple(feature.name for feature in FEATURES if feature.name not in SECONDS)


@dataclass(frozen=True)
class Material:
    """What models are fitted to and judged on.

    Attributes:
        parts: examples by part, all columns; see :data:`rudder_training_ml.checks.PARTS`.
        gains: float64 (examples,) by part: what replacing gains, as the label rule scores it.
        training: where they came from.
    """

    parts: Mapping[str, Examples]
    gains: Mapping[str, Floats]
    training: Training

    def __post_init__(self) -> None:
        for name, examples in self.parts.items():
            if self.gains.get(name, np.empty(0)).shape != (len(examples),):
                raise TrainingDataError(
                    f"the {name} part has {len(examples)} examples, but its gains are of shape "
                    f"{self.gains.get(name, np.empty(0)).shape}; label again"
                )


@dataclass(frozen=True)
class Fitted:
    """A model that was fitted and written.

    Attributes:
        folder: of the model.
        manifest: what is in it.
        seconds: of fitting.
        size: bytes of the model's files.
        checked: what the checks found worth telling.
    """

    folder: Path
    manifest: ModelManifest
    seconds: float
    size: int
    checked: Checked


def fit(
    estimator: Spec,
    material: Material,
    folder: Path,
    progress: Told,
    *,
    columns: Sequence[str] | None = None,
    seed: int = 0,
    threshold: float | None = 0.5,
    force: bool = False,
    search: Mapping[str, Any] | None = None,
) -> Fitted:
    """Fit an estimator and write its model.

    Args:
        estimator: its spec.
        material: examples; checked here.
        folder: of the model, named as the model.
        columns: to fit to, in this order; None = :func:`default_columns`. Those that are constant
            in the training part are left out.
        seed: of fitting; the same seed gives the same predictions.
        threshold: p(replace) from which the model means replace; None = that which costs least on
            the validation part.
        force: replace a model of another kind.
        search: how the estimator's parameters were found, for the manifest.

    Raises:
        TrainingDataError: see :func:`rudder_training_ml.checks.check`.
        PathTakenError: something else lies at ``folder``.
        ModelError: an estimator that breaks its contract.
        SpecError, UnknownNameError: an estimator, a name or a column that there is not.
    """
    from .estimators.weighing import weigh

    store.check_name(folder.name)
    spec = ESTIMATORS.resolve(estimator)
    store.check_free(folder, spec.name, force=force)
    columns = default_columns() if columns is None else tuple(columns)
    checked = check(material.parts, columns)
    # A column that never varied teaches nothing, and its support would call whatever varies later
    # unlike the training data.
    columns = tuple(name for name in columns if name not in checked.constant)
    if not columns:
        raise TrainingDataError(
            f"{', '.join(checked.constant)}: all columns are constant in the training part; fit to "
            "others, or collect more scenarios"
        )
    parts = {name: select(examples, columns) for name, examples in material.parts.items()}
    built: Estimator = ESTIMATORS.build(spec)

    started = time.perf_counter()
    report = built.fit(parts[TRAIN], parts[VALIDATION], seed, progress)
    seconds = time.perf_counter() - started

    p_validation = probabilities(built, parts[VALIDATION].rows)
    limit = best_threshold(p_validation, parts[VALIDATION]) if threshold is None else threshold
    # Chosen as the model's answers are: p = 0.5 balances the classes, a chosen threshold need not.
    rule = best_single_rule(parts[TRAIN], weigh(parts[TRAIN], balance=threshold is not None))
    told = {
        **report,
        "seconds": round(seconds, 3),
        "constant_columns": checked.constant,
        "single_feature_rule": str(rule),
        "majority": "replace" if majority(parts[TRAIN]) else "keep",
        "threshold_chosen_on": VALIDATION if threshold is None else None,
        "search": dict(search) if search is not None else None,
    }
    metrics = _metrics(built, parts, material.gains, limit, rule)
    proof = parts[TRAIN].rows[:_PROVEN]
    expected = probabilities(built, proof)

    def describe(files: dict[str, str]) -> ModelManifest:
        versions = {library: metadata.version(library) for library in built.libraries}
        return ModelManifest(
            name=folder.name,
            estimator=spec.to_dict(),
            observation_schema=OBSERVATION_SCHEMA,
            columns=_described(columns),
            files=files,
            support=Support.of(parts[TRAIN].rows),
            threshold=limit,
            training=material.training,
            fitted=plain(told),
            metrics=metrics,
            seed=seed,
            made_with={
                "python": platform.python_version(),
                "rudder-gnn": metadata.version("rudder-gnn"),
                "numpy": metadata.version("numpy"),
                **versions,
            },
            compatible={name: store.compatible(name, found) for name, found in versions.items()},
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )

    def verify(scratch: Path) -> None:
        answers = FittedModel.load(scratch).predict(proof, columns)
        if not np.array_equal(answers, expected):
            off = float(np.abs(answers - expected).max())
            raise ModelError(
                f"a {spec.name} that was saved and read back answers otherwise, by up to {off:.3g}"
            )

    manifest = store.write(folder, built, describe, verify)
    return Fitted(folder, manifest, seconds, store.size(folder), checked)


def probabilities(estimator: Estimator, rows: Floats) -> Floats:
    """What a fitted estimator predicts, held to its contract: float64 (n,) in 0..1.

    Raises:
        ModelError: it is not.
    """
    p = estimator.predict(np.ascontiguousarray(rows))  # as FittedModel does
    if p.shape != (len(rows),) or not ((p >= 0) & (p <= 1)).all():  # NaN is neither
        raise ModelError(
            f"{type(estimator).__name__} predicts what is no probability, or not one per row: "
            f"shape {p.shape} for {len(rows)} rows"
        )
    return p


def _metrics(
    estimator: Estimator,
    parts: Mapping[str, Examples],
    gains: Mapping[str, Floats],
    limit: float,
    rule: SingleRule,
) -> dict[str, float | None]:
    """On the test part: the estimator's metrics, the majority's and the best single rule's.

    The baselines are chosen on the training part, as the estimator is. Beside them the estimator's
    AUC on the parts that it has seen, which shows how much it learnt by heart.
    """
    empty = parts[TRAIN].take(np.zeros(len(parts[TRAIN]), bool))
    test, gain = parts.get(TEST, empty), gains.get(TEST, np.empty(0))
    p = probabilities(estimator, test.rows) if len(test) else np.empty(0)
    found = judge(test.labels, p >= limit, gain, p)
    most = np.full(len(test), majority(parts[TRAIN]))
    found |= {f"majority_{key}": value for key, value in judge(test.labels, most, gain).items()}
    single = judge(test.labels, rule.answers(test), gain, rule.score(test), probabilities=False)
    found |= {f"single_{key}": value for key, value in single.items()}
    for name in (TRAIN, VALIDATION):
        seen = parts[name]
        p = probabilities(estimator, seen.rows)
        found[f"{name}_auc"] = judge(seen.labels, p >= limit, gains[name], p)["auc"]
    return found


def _described(columns: Sequence[str]) -> tuple[Column, ...]:
    units = {feature.name: feature.unit for feature in FEATURES}
    return tuple(Column(name=name, unit=units[name]) for name in columns)
