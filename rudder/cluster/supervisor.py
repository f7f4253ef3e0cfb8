"""Runs the roles of a job: starts all, waits with deadlines, ends all when one fails."""

from __future__ import annotations

import logging
import os
import queue
import selectors
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from rudder.cluster.hosts import Cluster, RoleProcess, describe_status
from rudder.cluster.report import Report, ReportReader
from rudder.cluster.rolelog import RoleLog
from rudder.cluster.roles import Role
from rudder.errors import ClusterError, RoleError, UsageError
from rudder.terminating import sigterm_as_exit

logger = logging.getLogger(__name__)

OnReport = Callable[[Role, Report], None]

_POLL_SECONDS = 0.05
_SETTLE_SECONDS = 0.4
"""After a first failure: how long to listen for others, which may turn out to be its cause."""
_LAST_WORDS_SECONDS = 2.0
"""How long to wait for the end of an ended role's output (its own children may hold it open)."""
_READ_BYTES = 1 << 18
_TAIL_LINES = 15


@dataclass(frozen=True)
class Deadline:
    """Every role of these kinds must have reported ``phase`` so many seconds after the start."""

    phase: str
    seconds: float
    kinds: tuple[str, ...]


@dataclass
class _Running:
    """One role of the job with what is known of it."""

    role: Role
    process: RoleProcess
    reader: ReportReader
    log: FileIO
    phases: dict[str, float] = field(default_factory=dict)
    last_report: tuple[str, float] | None = None
    status: int | None = None
    ended_at: float = 0.0
    silent: bool = False
    """Its output has been read to the end."""


class Supervisor:
    """Runs jobs on a cluster, one after another.

    Args:
        stop_grace: seconds between SIGTERM and SIGKILL when a job is ended.
        service_grace: seconds that services get to end by themselves after the others have.
        after_services: seconds that the others may go on after a service has ended with 0.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        stop_grace: float = 2.0,
        service_grace: float = 5.0,
        after_services: float = 600.0,
    ) -> None:
        self._cluster = cluster
        self._stop_grace = stop_grace
        self._service_grace = service_grace
        self._after_services = after_services

    def run(
        self,
        roles: Sequence[Role],
        deadlines: Sequence[Deadline] = (),
        silence: float | None = None,
        on_report: OnReport | None = None,
    ) -> None:
        """Start all roles and wait until all but the services have ended with status 0.

        Whatever happens, no process of the job and no shared memory is left on the hosts.

        Args:
            deadlines: phases that must be reported in time.
            silence: once a role has reported "ready", the longest time in seconds without a report
                of any role that is not a service; None = no limit.
            on_report: called in this thread for each report, in each role's order. What it raises
                ends the job.

        Raises:
            RoleError: a role failed, or did not report in time.
            ClusterError: a host died.
            UsageError: no role, services only, two roles with one name, or no such host.
            KeyboardInterrupt, SystemExit: SIGINT; SIGTERM (status 143).
        """
        _check(roles, len(self._cluster.hosts))
        job = _Job(self._cluster, roles, deadlines, silence, on_report or _ignore)
        with sigterm_as_exit():
            try:
                job.start()
                job.wait(self._after_services)
                job.wait_for_services(self._service_grace)
            except BaseException as error:
                try:
                    job.end(self._stop_grace)
                except ClusterError as problem:  # what ended the job matters more
                    if isinstance(error, (RoleError, ClusterError)):
                        raise type(error)(f"{error} Then: {problem}") from error
                    logger.warning("%s", problem)
                raise
            job.end(self._stop_grace)


class _Job:
    """One job from its start to its end."""

    def __init__(
        self,
        cluster: Cluster,
        roles: Sequence[Role],
        deadlines: Sequence[Deadline],
        silence: float | None,
        on_report: OnReport,
    ) -> None:
        self._cluster = cluster
        self._roles = roles
        self._deadlines = deadlines
        self._silence = silence
        self._on_report = on_report
        self._started = time.monotonic()
        self._running: list[_Running] = []
        self._events: queue.SimpleQueue[tuple[_Running, Report | Exception | None]] = (
            queue.SimpleQueue()
        )
        self._stop_reading = threading.Event()
        self._reading: threading.Thread | None = None

    def start(self) -> None:
        for role in self._roles:
            try:
                role.log.parent.mkdir(parents=True, exist_ok=True)
                log = role.log.open("wb", buffering=0)
            except OSError as error:
                raise ClusterError(f"cannot make the log of {role.name}: {error}") from error
            try:
                process = self._cluster.spawn(role)
            except BaseException:
                log.close()
                raise
            reader = ReportReader(RoleLog(role.name, log))
            self._running.append(_Running(role, process, reader, log))
        self._reading = threading.Thread(target=self._read, name="rudder-output", daemon=True)
        self._reading.start()

    def wait(self, after_services: float) -> None:
        """Until every role that is not a service has ended with 0."""
        while not all(r.status == 0 and r.silent for r in self._running if not r.role.service):
            self._listen(_POLL_SECONDS)
            self._check_ends()
            self._check_deadlines()
            self._check_silence()
            self._check_deserted(after_services)

    def wait_for_services(self, seconds: float) -> None:
        """Let services end by themselves for a while; a bad end is worth a warning by now."""
        deadline = time.monotonic() + seconds
        while any(r.status is None for r in self._running) and time.monotonic() < deadline:
            self._listen(_POLL_SECONDS)
        for running in self._running:
            if running.role.service and running.status not in (0, None):
                logger.warning(
                    "%s %s when the job was done; see %s",
                    running.role.name,
                    describe_status(running.status),
                    running.role.log,
                )

    def end(self, grace: float) -> None:
        """End what runs, whatever its state, and close all."""
        try:
            for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, grace + 1.0)):
                deadline = time.monotonic() + seconds
                for running in self._alive():
                    running.process.send_signal(number)
                while self._alive() and time.monotonic() < deadline:
                    time.sleep(0.02)
            if self._cluster.failure() is None:
                self._cluster.clean()
        finally:
            if self._reading is not None:
                self._reading.join(_LAST_WORDS_SECONDS)
                self._stop_reading.set()
                self._reading.join()
            for running in self._running:
                os.close(running.process.output)
                running.log.close()

    # What is checked while the job runs.

    def _listen(self, seconds: float) -> None:
        """Handle what the output thread has found, waiting for it at most ``seconds``."""
        try:
            running, event = self._events.get(timeout=seconds)
            while True:
                self._handle(running, event)
                running, event = self._events.get_nowait()
        except queue.Empty:
            pass
        for running in self._running:
            if running.status is None:
                running.status = running.process.poll()
                running.ended_at = running.process.ended_at

    def _handle(self, running: _Running, event: Report | Exception | None) -> None:
        if event is None:
            running.silent = True
        elif isinstance(event, Exception):
            raise ClusterError(
                f"cannot keep the output of {running.role.name} in {running.role.log}: {event}"
            ) from event
        else:
            now = time.monotonic()
            running.phases.setdefault(event.phase, now)
            running.last_report = (event.phase, now)
            self._on_report(running.role, event)

    def _check_ends(self) -> None:
        if self._cluster.failure() is not None or self._failed():
            self._settle()
            failure = self._cluster.failure()
            if failure is not None:
                raise ClusterError(self._cluster_failure(failure))
            raise RoleError(self._role_failure())
        for running in self._running:
            if running.status != 0:
                continue
            if not running.silent and time.monotonic() > running.ended_at + _LAST_WORDS_SECONDS:
                running.silent = True
            missing = [d.phase for d in self._owed(running)] if running.silent else []
            if missing:
                raise RoleError(
                    f"{self._where(running)} ended with status 0 without having reported "
                    f"{missing[0]!r}.{self._tail(running)}"
                )

    def _check_deadlines(self) -> None:
        passed = time.monotonic() - self._started
        for deadline in self._deadlines:
            if passed <= deadline.seconds:
                continue
            late = [r for r in self._running if deadline in self._owed(r)]
            if late:
                raise RoleError(
                    f"no {deadline.phase!r} within {deadline.seconds:g} s from "
                    f"{', '.join(self._where(r) for r in late)}.{self._tail(late[0])}"
                )

    def _check_silence(self) -> None:
        if self._silence is None:
            return
        watched = [r for r in self._running if not r.role.service]
        reports = [r.last_report[1] for r in watched if r.last_report is not None]
        if not any("ready" in r.phases for r in watched):
            return
        quiet = time.monotonic() - max(reports)
        open_ = [r for r in watched if r.status is None]
        if quiet > self._silence and open_:
            raise RoleError(
                f"no report of any role for {quiet:.0f} s (the limit is {self._silence:g} s); "
                f"last: {', '.join(self._last_report(r) for r in open_)}.{self._tail(open_[0])}"
            )

    def _check_deserted(self, seconds: float) -> None:
        """The others cannot go on for long once a service has left."""
        now = time.monotonic()
        left = [r for r in self._running if r.role.service and r.status == 0]
        rest = [r for r in self._running if not r.role.service and r.status is None]
        if rest and left and now > min(r.ended_at for r in left) + seconds:
            raise RoleError(
                f"{self._where(left[0])} ended {now - left[0].ended_at:.0f} s ago, but still "
                f"running: {', '.join(self._where(r) for r in rest)}.{self._tail(rest[0])}"
            )

    # What is found out and said about a failure.

    def _alive(self) -> list[_Running]:
        return [r for r in self._running if r.process.poll() is None]

    def _failed(self) -> list[_Running]:
        """Failed roles, the likeliest cause first: killed before exited, then by time."""
        failed = [r for r in self._running if r.status not in (None, 0)]
        return sorted(failed, key=lambda r: (r.status is not None and r.status > 0, r.ended_at))

    def _owed(self, running: _Running) -> list[Deadline]:
        return [
            d
            for d in self._deadlines
            if running.role.kind in d.kinds and d.phase not in running.phases
        ]

    def _settle(self) -> None:
        """Listen on: the death of a host shows first as the death of its roles."""
        until = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < until:
            self._listen(_POLL_SECONDS)

    def _role_failure(self) -> str:
        first, *others = self._failed()
        seconds = first.ended_at - self._started
        also = ""
        if others:
            also = " After it failed: " + ", ".join(self._where(r) for r in others) + "."
        return (
            f"{self._where(first)} {describe_status(first.status or 0)} after {seconds:.1f} s, "
            f"so the job was ended.{also}{self._tail(first)}"
        )

    def _cluster_failure(self, failure: str) -> str:
        dead = [r for r in self._running if r.status not in (None, 0)]
        with_it = f" With it: {', '.join(r.role.name for r in dead)}." if dead else ""
        logs = sorted({str(r.role.log.parent) for r in self._running})
        return f"{failure}, so the job was ended.{with_it} Logs: {', '.join(logs)}"

    def _where(self, running: _Running) -> str:
        host = self._cluster.hosts[running.role.host]
        return f"{running.role.name} ({host.address})"

    def _last_report(self, running: _Running) -> str:
        if running.last_report is None:
            return f"{self._where(running)}: nothing"
        phase, at = running.last_report
        return f"{self._where(running)}: {phase!r} {time.monotonic() - at:.0f} s ago"

    def _tail(self, running: _Running) -> str:
        """The last lines of a role's log, once its output has been read, and where it lies."""
        until = time.monotonic() + _LAST_WORDS_SECONDS
        while running.status is not None and not running.silent and time.monotonic() < until:
            self._listen(_POLL_SECONDS)
        lines = last_lines(running.role.log)
        said = "".join(f"\n    {line}" for line in lines) if lines else " nothing"
        return f" Log {running.role.log} ends with:{said}"

    # The thread that empties the pipes, so that no role ever waits for on_report or a slow disk.

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            for running in self._running:
                selector.register(running.process.output, selectors.EVENT_READ, running)
            while selector.get_map() and not self._stop_reading.is_set():
                for key, _ in selector.select(0.2):
                    running = key.data
                    try:
                        data = os.read(key.fd, _READ_BYTES)
                        for found in running.reader.feed(data):
                            self._events.put((running, found))
                        if not data:
                            running.reader.close()
                    except OSError as error:
                        self._events.put((running, error))
                        data = b""
                    if not data:
                        selector.unregister(key.fd)
                        self._events.put((running, None))


def last_lines(log: Path, lines: int = _TAIL_LINES) -> list[str]:
    """The last lines of a log, without reading all of it."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 200 * lines))
        return file.read().decode(errors="replace").splitlines()[-lines:]


def _check(roles: Sequence[Role], hosts: int) -> None:
    if not any(not role.service for role in roles):
        raise UsageError("a job needs at least one role that is not a service, or it never ends")
    seen: set[tuple[str, int]] = set()
    for role in roles:
        if not 0 <= role.host < hosts:
            raise UsageError(f"role {role.name}: there are only {hosts} hosts")
        if (role.kind, role.index) in seen:
            raise UsageError(f"two roles are called {role.kind} {role.index}")
        seen.add((role.kind, role.index))


def _ignore(role: Role, report: Report) -> None:
    return
