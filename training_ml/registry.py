"""Fitted models in MLflow: a run each, and a version in the Model Registry.

A version is *model from code*: a small Python file with the model's directory as artifact, so that
loading it unpickles nothing and passes the same checks as everywhere else.
"""

from __future__ import annotations

import json
import logging
import math
import re
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import rudder
from rudder.errors import TrackingError
from rudder.model import MANIFEST_FILE, ModelManifest, sha256
from rudder.spec import Spec
from rudder.tracking.outbox import Record
from rudder.tracking.params import MAX_TAG, MAX_VALUE, clip
from rudder.tracking.provenance import code_version, user
from rudder.tracking.sending import log_params, open_run
from rudder.tracking.store import Store

EXPERIMENT = "rudder-models"
PREFIX = "rudder-"
"""Keeps the names of registered models apart from others' on a shared server."""
CODE = Path(__file__).with_name("mlflow_model.py")
_ARTIFACT = "model"
_EXAMPLE_ROWS = 3


@dataclass(frozen=True)
class Registered:
    """A version in the Model Registry.

    Attributes:
        name, version: of it.
        alias: points to the newest version with this label rule.
        run_id: of the run that holds params, metrics and files.
    """

    name: str
    version: str
    alias: str
    run_id: str

    @property
    def uri(self) -> str:
        """What ``mlflow.pyfunc.load_model`` takes."""
        return f"models:/{self.name}/{self.version}"


def register(store: Store, folder: Path) -> Registered:
    """Log a model's directory and register a version of it; once, however often it is called.

    Raises:
        ModelError: no model there, or one that cannot be read here.
        TrackingError: MLflow cannot be reached or refuses.
    """
    manifest = ModelManifest.read(folder)
    record = _record(store, manifest, sha256(folder / MANIFEST_FILE))
    name, alias = PREFIX + manifest.name, _alias(manifest)
    with store.session() as client:
        run_id = open_run(client, store, record)
        known = _version(client, name, run_id)
    if known is not None:
        return Registered(name, known, alias, run_id)
    with tempfile.TemporaryDirectory(prefix="rudder-model-") as scratch:
        # Between sessions: it takes seconds, and a session keeps others out.
        packed = pack(folder, manifest, Path(scratch))
        with store.session() as client:
            log_params(client, run_id, record)
            _log_metrics(client, run_id, record, manifest)
            client.log_artifact(run_id, str(folder / MANIFEST_FILE))
            client.log_artifacts(run_id, str(packed), _ARTIFACT)
            client.set_terminated(run_id, record.status, record.end_ms)
            version = _create_version(client, name, run_id, record.tags)
            client.set_registered_model_alias(name, alias, version)
    return Registered(name, version, alias, run_id)


def pack(folder: Path, manifest: ModelManifest, scratch: Path) -> Path:
    """A model as MLflow keeps it, in a new directory below ``scratch``."""
    import pandas as pd
    from mlflow import pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    packed = scratch / _ARTIFACT
    # Rows around the middle of the training data: inside its support, and nobody's own data.
    centre = manifest.support.centre
    example = pd.DataFrame([centre] * _EXAMPLE_ROWS, columns=list(manifest.names), dtype="float64")
    signature = ModelSignature(
        inputs=Schema([ColSpec("double", name) for name in manifest.names]),
        outputs=Schema([ColSpec("double", "p_replace"), ColSpec("boolean", "replace")]),
    )
    logger = logging.getLogger("mlflow")
    level = logger.level
    logger.setLevel(logging.ERROR)  # remarks on requirements that name this project
    try:
        pyfunc.save_model(
            str(packed),
            python_model=str(CODE),
            artifacts={"model": str(folder)},
            signature=signature,
            input_example=example,
            pip_requirements=[f"rudder-gnn[classifiers]=={rudder.__version__}"],
            metadata={"rudder": {"label": manifest.training.label, "seed": manifest.seed}},
        )
    except OSError as error:
        raise TrackingError(f"cannot pack {folder} for MLflow: {error}") from error
    finally:
        logger.setLevel(level)
    return packed


def _record(store: Store, manifest: ModelManifest, digest: str) -> Record:
    training, spec = manifest.training, manifest.spec
    # Of the manifest, so that what is sent again is what is there.
    created = datetime.fromisoformat(manifest.created or "1970-01-01T00:00:00+00:00")
    ended = round(created.timestamp() * 1000)
    seconds = manifest.fitted.get("seconds")
    params = {
        "estimator": spec.name,
        **{f"estimator.{key}": json.dumps(value) for key, value in spec.params.items()},
        "label": training.label,
        "suite": training.suite,
        "seed": str(manifest.seed),
        "threshold": str(manifest.threshold),
        "columns": ",".join(manifest.names),
        "seeds": ",".join(map(str, training.seeds)),
        "graphs": ",".join(training.graphs),
        **{f"examples.{part}": str(count) for part, count in training.examples.items()},
    }
    tags = {
        "rudder.model": manifest.name,
        "rudder.estimator": spec.name,
        "rudder.label": training.label,
        "rudder.suite": training.suite,
        "rudder.suite_digest": training.suite_digest,
        "rudder.collection": training.collection,
        "rudder.manifest": digest,
        "rudder.seed": str(manifest.seed),
        "rudder.commit": code_version(),
        "rudder.version": rudder.__version__,
        "mlflow.user": user(),
        "mlflow.source.name": "rudder fit",
        "mlflow.source.type": "LOCAL",
    }
    return Record(
        # By content: what is sent twice finds the first run.
        local_id=digest[:32],
        uri=None if store.is_default else store.shown,
        experiment=EXPERIMENT,
        name=f"{manifest.name} ({training.label})",
        start_ms=ended - round(1000 * float(seconds or 0.0)),
        params={key: clip(value, MAX_VALUE) for key, value in params.items()},
        tags={key: clip(value, MAX_TAG) for key, value in tags.items()},
        status="FINISHED",
        end_ms=ended,
    )


def _log_metrics(client: Any, run_id: str, record: Record, manifest: ModelManifest) -> None:
    from mlflow.entities import Metric

    seconds = manifest.fitted.get("seconds")
    found = {**manifest.metrics, "fit_seconds": None if seconds is None else float(seconds)}
    metrics = [
        Metric(key, value, record.end_ms, 0)
        for key, value in found.items()
        if value is not None and math.isfinite(value)
    ]
    client.log_batch(run_id, metrics=metrics)


def _version(client: Any, name: str, run_id: str) -> str | None:
    """The version that an earlier call made of a run."""
    found = client.search_model_versions(f"name='{name}' and run_id='{run_id}'")
    return str(found[0].version) if found else None


def _create_version(client: Any, name: str, run_id: str, tags: dict[str, str]) -> str:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, description="p(replace), fitted by rudder fit")
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    source = f"{client.get_run(run_id).info.artifact_uri}/{_ARTIFACT}"
    own = {key: value for key, value in tags.items() if key.startswith("rudder.")}
    return str(client.create_model_version(name, source, run_id, tags=own).version)


def _alias(manifest: ModelManifest) -> str:
    """The label rule's name, as far as an alias may hold it."""
    rule = re.sub(r"[^A-Za-z0-9_-]", "-", Spec.parse(manifest.training.label).name)
    # MLflow keeps "latest" and "v1", "v2", … for itself.
    return f"rule-{rule}" if rule == "latest" or re.fullmatch(r"v\d+", rule) else rule
