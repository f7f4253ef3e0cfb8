"""The tracker: one MLflow run per training run, whatever happens to the run or to the server."""

from __future__ import annotations

import dataclasses
import logging
import time
import traceback
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import rudder
from rudder.controller import Capabilities
from rudder.errors import RudderError, TrackingError, UsageError
from rudder.home import Home
from rudder.identity import Process
from rudder.registries import CONTROLLERS
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.tracking import outbox, provenance, unfinished
from rudder.tracking.metrics import result_tags, split_finite
from rudder.tracking.outbox import ERROR
from rudder.tracking.params import MAX_TAG, MAX_VALUE, clip, clipped, flatten
from rudder.tracking.sending import forget_error, log_params, open_run, send
from rudder.tracking.store import Store

_log = logging.getLogger(__name__)


class Tracker:
    """Tracks runs in the store of ``home``, or in any MLflow server or database by ``uri``.

    >>> tracker = Tracker(home)
    >>> with tracker.run(scenario, controller, tags={"rudder.engine": "distdgl"}) as tracked:
    ...     tracked.attach_logs(options.run_dir / "logs")
    ...     tracked.finish(engine.run(scenario, controller, options))

    A store that cannot be reached never stops a run: what it should have got stays in the outbox,
    a warning says so, and ``rudder sync`` sends it.

    Raises:
        UsageError: ``uri`` is none.
    """

    def __init__(self, home: Home, uri: str | None = None) -> None:
        self.home = home
        self.store = Store(home, uri)

    def run(
        self,
        scenario: Scenario,
        controller: Spec,
        tags: Mapping[str, str] | None = None,
        experiment: str = "rudder",
        name: str | None = None,
        again: tuple[str, int] | None = None,
    ) -> TrackedRun:
        """A run to enter with ``with``; it is RUNNING in MLflow when the block begins.

        Args:
            tags: what only the caller knows: ``rudder.engine``, and ``rudder.split`` if there is
                one. They come beside ``rudder.commit``, ``rudder.controller``,
                ``rudder.controller_family``, ``rudder.graph``, ``rudder.policy``,
                ``rudder.process`` and ``rudder.version``, and win over them.
            name: name of the run; default: graph and controller.
            again: local id and start (ms since 1970) of a run that ended too early and goes on.
        """
        process = Process.own()
        record = self._record(
            uuid.uuid4().hex if again is None else again[0],
            experiment,
            name or f"{scenario.graph} {controller}",
            flatten(scenario, controller),
            _tags(scenario, controller, {"rudder.process": str(process), **(tags or {})}),
        )
        if again is not None:
            record = dataclasses.replace(record, start_ms=again[1])
        specs = _specs(scenario, controller)
        return TrackedRun(self, record, specs, process, again=again is not None)

    def group(
        self,
        local_id: str,
        name: str,
        params: Mapping[str, str],
        tags: Mapping[str, str],
        experiment: str = "rudder",
    ) -> TrackedRun:
        """A run that others belong to, to enter with ``with``; RUNNING again if it ended before.

        Args:
            local_id: of 32 hex digits; the same one means the same run.
            params: of the group; MLflow takes no other values for them later. What may change
                belongs into ``tags``.
        """
        process = Process.own()
        all_tags = {**_common_tags(), "rudder.process": str(process), **tags}
        record = self._record(local_id, experiment, name, clipped(params, MAX_VALUE), all_tags)
        record = dataclasses.replace(record, bare=True)
        return TrackedRun(self, record, {}, process, again=True)

    def log(
        self,
        local_id: str,
        scenario: Scenario,
        controller: Spec,
        *,
        start_ms: int,
        end_ms: int,
        result: RunResult | None = None,
        error: str | None = None,
        tags: Mapping[str, str] | None = None,
        experiment: str = "rudder",
        name: str | None = None,
        parent: str | None = None,
        brief: bool = False,
        logs: Path | None = None,
    ) -> Sent:
        """Track a run that has ended; told twice, it is there once.

        Args:
            local_id: of 32 hex digits; the same one means the same run.
            result: of a run that finished; None = it failed, with ``error``.
            parent: local id of the group that it belongs to.
            brief: neither metrics per minibatch nor figures: for runs by the thousand.
            logs: a folder whose ``*.log`` files come along.

        Raises:
            TrackingError: it cannot even be kept on disk.
        """
        told = _tags(scenario, controller, {**(tags or {})})
        if result is not None:
            told |= split_finite(result.summary)[1] if brief else result_tags(result)
        elif error is not None:
            told[ERROR] = error.strip().rpartition("\n")[2]
        record = dataclasses.replace(
            self._record(
                local_id, experiment, name or f"{scenario.graph} {controller}",
                flatten(scenario, controller), told,
            ),
            start_ms=start_ms, end_ms=end_ms, parent=parent, brief=brief,
            status="FAILED" if result is None else "FINISHED",
        )  # fmt: skip
        specs = _specs(scenario, controller)
        package = outbox.pack(self.home, record, specs, result=result, error=error, logs=logs)
        return self._send(package)

    def add(
        self,
        local_id: str,
        name: str,
        *,
        tags: Mapping[str, str] | None = None,
        metrics: Mapping[str, float] | None = None,
        files: Mapping[str, Path] | None = None,
        experiment: str = "rudder",
    ) -> Sent:
        """Add to a run of this data directory, whether it goes on or has ended.

        Args:
            name: of the run, as it was when it began.
            metrics: those that are not finite become tags.
            files: files and folders, by their path among the artifacts.

        Raises:
            TrackingError: it cannot even be kept on disk.
        """
        finite, other = split_finite(metrics or {})
        record = self._record(local_id, experiment, name, {}, {**other, **(tags or {})})
        record = dataclasses.replace(
            record, status="AS IT IS", metrics=finite, bare=True, part=uuid.uuid4().hex[:8]
        )
        return self._send(outbox.pack(self.home, record, {}, files=files))

    def catch_up(self) -> None:
        """Send what an earlier process left in the outbox for this store; warn where it stays."""
        self.end_those_of_dead_processes()
        for package in outbox.pending(self.home):
            if isinstance(package, outbox.Damaged):
                _log.warning("%s", package.reason)
            elif package.record.uri == self._uri:
                self._send(package)

    def end_those_of_dead_processes(self) -> None:
        """End the runs of processes that were killed; what goes to another store waits for sync."""
        for package in unfinished.end_those_of_dead_processes(self.home):
            if package.record.uri == self._uri:
                self._send(package)

    @property
    def _uri(self) -> str | None:
        return None if self.store.is_default else self.store.shown

    def _record(
        self,
        local_id: str,
        experiment: str,
        name: str,
        params: dict[str, str],
        tags: Mapping[str, str],
    ) -> outbox.Record:
        return outbox.Record(
            local_id=local_id, uri=self._uri, experiment=experiment, name=clip(name, 200),
            start_ms=_now_ms(), params=params, tags=clipped(tags, MAX_TAG),
        )  # fmt: skip

    def _send(self, package: outbox.Package) -> Sent:
        try:
            return Sent(send(self.store, package))
        except RudderError as error:
            _log.warning(
                "%s. The run is kept in %s: 'rudder sync' sends it.", error, package.folder
            )
            return Sent(None, str(error))


class Sent(NamedTuple):
    """What became of a run on its way to MLflow.

    Attributes:
        run_id: its id there; None = it is kept, or another process has sent it.
        problem: why it is kept.
    """

    run_id: str | None
    problem: str | None = None


class TrackedRun:
    """One training run in MLflow. Ends FINISHED by :meth:`finish`; else FAILED, or KILLED.

    If its process dies, the next tracked run of this data directory or ``rudder sync`` ends it.

    Args:
        specs: file name -> JSON value, artifacts from the start.
        again: it may have ended before; then it goes on.

    Attributes:
        run_id: id in MLflow, from the start of the block; None while the store is unreachable.
        problem: why the store could not be reached last; None while all is well.
    """

    def __init__(
        self,
        tracker: Tracker,
        record: outbox.Record,
        specs: dict[str, Any],
        process: Process,
        *,
        again: bool = False,
    ) -> None:
        self.run_id: str | None = None
        self.problem: str | None = None
        self._tracker = tracker
        self._record = record
        self._specs = specs
        self._again = again
        self._note = unfinished.Note(record, self._specs, process)
        self._noted = False
        self._logs: Path | None = None
        self._ended = False

    @property
    def local_id(self) -> str:
        """Id of this run here, a tag of the run in MLflow."""
        return self._record.local_id

    @property
    def uri(self) -> str | None:
        """Its store, without password; None = the default one."""
        return self._record.uri

    @property
    def start_ms(self) -> int:
        """When it began, ms since 1970 UTC."""
        return self._record.start_ms

    def attach_logs(self, folder: Path) -> None:
        """Keep the ``*.log`` files that ``folder`` and those below hold when the run ends."""
        self._logs = folder.absolute()
        self._note = dataclasses.replace(self._note, logs=str(self._logs))
        if self._noted:
            self._keep_note()

    def finish(
        self,
        result: RunResult | None = None,
        *,
        tags: Mapping[str, str] | None = None,
        metrics: Mapping[str, float] | None = None,
        files: Mapping[str, Path] | None = None,
    ) -> None:
        """End FINISHED with a result, or with what a group came to.

        Args:
            tags, metrics, files: as for :meth:`Tracker.add`.

        Raises:
            TrackingError: called twice, or the result cannot even be kept on disk.
        """
        if self._ended:
            raise TrackingError(f"run {self._record.name!r} has ended already")
        finite, other = split_finite(metrics or {})
        self._record = dataclasses.replace(
            self._record, metrics=finite, tags={**self._record.tags, **other, **(tags or {})}
        )
        self._end("FINISHED", result=result, files=files)

    def __enter__(self) -> TrackedRun:
        self._keep_note()
        try:
            self._open()
            self._tracker.end_those_of_dead_processes()
        except UsageError:  # there is no such store: nothing to keep for it
            unfinished.forget(self._tracker.home, self.local_id)
            raise
        except BaseException as error:  # stopped already: nobody calls __exit__ then
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ended:
            return
        if error is None:
            self._end("FAILED", reason="The run ended without a result.")
            return
        # KeyboardInterrupt, SystemExit and the like: somebody stopped it.
        status: outbox.Status = "FAILED" if isinstance(error, Exception) else "KILLED"
        try:
            self._end(
                status,
                reason="".join(traceback.format_exception_only(kind, error)).strip(),
                report="".join(traceback.format_exception(kind, error, trace)),
            )
        except TrackingError as problem:  # the run's own error matters more
            _log.warning("%s", problem)

    def _open(self) -> None:
        try:
            with self._tracker.store.session() as client:
                self.run_id = open_run(client, self._tracker.store, self._record)
                log_params(client, self.run_id, self._record)
                if self._again:
                    client.update_run(self.run_id, status="RUNNING")
                    forget_error(client, self.run_id)
        except TrackingError as error:
            self.problem = str(error)
            _log.warning("%s. Training goes on; the run is sent when it ends.", error)

    def _keep_note(self) -> None:
        try:
            self._note.keep(self._tracker.home)
            self._noted = True
        except TrackingError as error:
            _log.warning("%s. Training goes on; should it be killed, nobody ends the run.", error)

    def _end(
        self,
        status: outbox.Status,
        *,
        result: RunResult | None = None,
        reason: str | None = None,
        report: str | None = None,
        files: Mapping[str, Path] | None = None,
    ) -> None:
        tags = dict(self._record.tags)
        if reason is not None:
            tags[ERROR] = reason
        if result is not None:
            tags |= result_tags(result)
        tags = clipped(tags, MAX_TAG)
        record = dataclasses.replace(self._record, status=status, end_ms=_now_ms(), tags=tags)
        package = outbox.pack(
            self._tracker.home,
            record,
            self._specs,
            result=result,
            error=report or reason,
            logs=self._logs,
            files=files,
        )
        self._ended = True
        unfinished.forget(self._tracker.home, self.local_id)
        try:
            self.run_id = send(self._tracker.store, package) or self.run_id
            self.problem = None
        except RudderError as error:
            self.problem = str(error)
            _log.warning(
                "%s. The run is kept in %s: 'rudder sync' sends it.", error, package.folder
            )
        except KeyboardInterrupt:
            _log.warning("Interrupted while sending; 'rudder sync' sends the run again.")
            raise


def _specs(scenario: Scenario, controller: Spec) -> dict[str, Any]:
    return {
        "scenario.json": scenario.model_dump(mode="json"),
        "controller.json": controller.to_dict(),
    }


def _tags(scenario: Scenario, controller: Spec, given: Mapping[str, str]) -> dict[str, str]:
    return {
        **_common_tags(),
        "rudder.controller": str(controller),
        "rudder.controller_family": _family(controller.name),
        "rudder.graph": Spec.parse(scenario.graph).name,
        "rudder.policy": Spec.parse(scenario.policy).name,
        **given,
    }


def _common_tags() -> dict[str, str]:
    commit = provenance.git_commit()
    tags = {
        "rudder.commit": provenance.code_version(),
        "rudder.version": rudder.__version__,
        # What MLflow's own columns User, Source and Version read.
        "mlflow.user": provenance.user(),
        "mlflow.source.name": "rudder",
        "mlflow.source.type": "LOCAL",
    }
    if commit is not None:
        tags["mlflow.source.git.commit"] = commit
    return tags


def _family(controller: str) -> str:
    """What kind of thing decides: ``llm``, ``classifier`` or ``rule``."""
    if controller not in CONTROLLERS:
        return "unregistered"
    needs = getattr(CONTROLLERS.target(controller), "tags", Capabilities())
    if needs.llm:
        return "llm"
    return "classifier" if needs.fitted_model else "rule"


def _now_ms() -> int:
    return int(time.time() * 1000)
