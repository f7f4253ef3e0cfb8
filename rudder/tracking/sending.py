"""From the outbox to MLflow. Sending again what was sent in part, or whole, adds nothing twice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from rudder.errors import RudderError
from rudder.home import Home
from rudder.result import RunResult
from rudder.tracking.metrics import (
    PREFIX,
    finite_summary,
    minibatch_series,
    timestamps,
)
from rudder.tracking.outbox import ERROR, Damaged, Package, Record, pending
from rudder.tracking.store import Store, exclusive
from rudder.tracking.unfinished import end_those_of_dead_processes

LOCAL_ID = "rudder.local_id"
PARENT = "mlflow.parentRunId"
RUN_NAME = "mlflow.runName"
_PER_BATCH, _METRICS_PER_BATCH, _BYTES_PER_BATCH = 100, 1000, 500_000


def open_run(client: Any, store: Store, record: Record) -> str:
    """The id of the record's run in MLflow: the one with its local id, else a new one."""
    experiment = store.experiment(client, record.experiment)
    found = find_run(client, experiment, record.local_id)
    if found is not None:
        return str(found.info.run_id)
    tags = {**record.tags, LOCAL_ID: record.local_id}
    if record.parent is not None:
        tags[PARENT] = _parent(client, experiment, record)
    run = client.create_run(experiment, record.start_ms, tags, record.name)
    return str(run.info.run_id)


def find_run(client: Any, experiment: str, local_id: str) -> Any | None:
    """The run of a local id in an experiment, if MLflow has it."""
    found = client.search_runs([experiment], f"tags.`{LOCAL_ID}` = '{local_id}'")
    return found[0] if found else None


def _parent(client: Any, experiment: str, record: Record) -> str:
    """The id of the run that a record's belongs to; made, if its own record comes later."""
    found = find_run(client, experiment, str(record.parent))
    if found is None:
        tags = {LOCAL_ID: str(record.parent)}
        found = client.create_run(experiment, record.start_ms, tags, "sent later")
    return str(found.info.run_id)


def forget_error(client: Any, run_id: str) -> None:
    """A run that goes on has not failed."""
    if ERROR in client.get_run(run_id).data.tags:
        client.delete_tag(run_id, ERROR)


def log_params(client: Any, run_id: str, record: Record) -> None:
    """Log the record's params."""
    from mlflow.entities import Param

    for batch in _batches(record.params.items()):
        client.log_batch(run_id, params=[Param(name, value) for name, value in batch])


def send(store: Store, package: Package) -> str | None:
    """Send one ended run, take it out of the outbox and return its id in MLflow.

    None if another process has sent it meanwhile.

    Raises:
        TrackingError: MLflow cannot be reached or refuses; the folder stays as it is.
        ResultError: the run's result is damaged.
    """
    with exclusive(package.lock), store.session() as client:
        if not package.folder.exists():
            package.lock.unlink(missing_ok=True)
            return None
        record, result = package.record, package.result()
        run_id = open_run(client, store, record)
        log_params(client, run_id, record)
        _log_metrics(client, run_id, record, result)
        _log_tags(client, run_id, {**record.tags, RUN_NAME: record.name})
        client.log_artifacts(run_id, str(package.artifacts))
        if record.status != "AS IT IS":
            client.set_terminated(run_id, record.status, record.end_ms)
        package.discard()
        return run_id


def sync(home: Home, uri: str | None = None) -> list[dict[str, Any]]:
    """Send every run of the outbox, to ``uri`` or to where each was meant to go.

    Runs whose process was killed are among them, as KILLED.

    Returns one row per run: ``name`` (its local id), ``run``, ``experiment``, ``uri``, ``run_id``,
    ``sent``, and ``reason`` where it could not be sent and stays.

    Raises:
        UsageError: ``uri`` is none.
    """
    if uri is not None:
        Store(home, uri)
    end_those_of_dead_processes(home)
    return [_row(home, each, uri) for each in pending(home)]


def _row(home: Home, each: Package | Damaged, uri: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": each.folder.name, "run": None, "experiment": None, "uri": None, "run_id": None,
        "sent": False, "reason": None,
    }  # fmt: skip
    if isinstance(each, Damaged):
        return {**row, "reason": each.reason}
    record = each.record
    row |= {"name": record.local_id, "run": record.name, "experiment": record.experiment}
    try:
        store = Store(home, uri or record.uri)
        row["uri"] = store.shown
        return {**row, "run_id": send(store, each), "sent": True}
    except RudderError as error:
        return {**row, "reason": str(error)}


def _log_metrics(client: Any, run_id: str, record: Record, result: RunResult | None) -> None:
    """Log summary and minibatches; what is not finite is left to the record's tags."""
    from mlflow.entities import Metric

    end = record.end_ms or record.start_ms
    told = {} if result is None else finite_summary(result.summary)
    metrics = [Metric(key, value, end, 0) for key, value in {**told, **record.metrics}.items()]
    series = {} if result is None or record.brief else minibatch_series(result.minibatches)
    at = timestamps(series, record.start_ms) if series else {}
    for name, each in series.items():
        good = each.finite()
        metrics += [
            Metric(PREFIX + name, float(value), at[int(step)], int(step))
            for step, value in zip(good.steps, good.values, strict=True)
        ]
    for start in range(0, len(metrics), _METRICS_PER_BATCH):
        client.log_batch(run_id, metrics=metrics[start : start + _METRICS_PER_BATCH])


def _log_tags(client: Any, run_id: str, tags: dict[str, str]) -> None:
    from mlflow.entities import RunTag

    for batch in _batches(tags.items()):
        client.log_batch(run_id, tags=[RunTag(name, value) for name, value in batch])


def _batches(items: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """At most 100 params or tags at a time, and well below the 1 MB of a request as JSON."""
    batch: list[tuple[str, str]] = []
    size = 0
    for item in items:
        length = len(json.dumps(item))
        if batch and (len(batch) == _PER_BATCH or size + length > _BYTES_PER_BATCH):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += length
    if batch:
        yield batch
