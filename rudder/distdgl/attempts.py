"""More than one attempt at a run: what is worth another, from where, and what is told of it."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rudder.cluster.hosts import Cluster
from rudder.distdgl import checkpoint
from rudder.distdgl.job import Job
from rudder.errors import (
    CheckpointError,
    ClusterError,
    NamespaceError,
    PreflightError,
    RudderError,
    TransportError,
    UsageError,
)
from rudder.locks import held

_log = logging.getLogger(__name__)

_STARTS = "starts.jsonl"
_LOCK = ".lock"


def worth_another(error: RudderError) -> bool:
    """Could the same run come to its end if it is started again?

    A process or a host was lost, or a link; not: what would fail in the same way once more.
    """
    lost = isinstance(error, ClusterError | TransportError)
    return lost and not isinstance(error, NamespaceError | PreflightError)


def unfinished_job(run_dir: Path, *, all_here: bool = True) -> Job:
    """The job of a run that can go on.

    Args:
        all_here: checkpoints lie on this machine only; else hosts may have some too.

    Raises:
        UsageError: there is no such run, it records a trace, or was told to keep no checkpoint.
        CheckpointError: what is there of the job cannot be read, or no checkpoint is whole.
    """
    if not run_dir.is_dir():
        raise UsageError(f"there is no run {run_dir}; 'ls {run_dir.parent}' shows those that are")
    again = "run it from the beginning"
    try:
        job = Job.load(run_dir / "job.json")
    except FileNotFoundError:
        raise UsageError(f"{run_dir} ended before its job was made; {again}") from None
    except (OSError, ValueError, KeyError, TypeError, UsageError) as error:
        raise CheckpointError(f"{run_dir / 'job.json'} cannot be read: {error}; {again}") from error
    if job.record is not None:
        raise UsageError(
            f"{run_dir} records the access trace {job.record}, which would lack what was sampled "
            f"before the run ended; {again}, with another --record"
        )
    if not job.checkpoint:
        raise UsageError(f"{run_dir} was run with --no-checkpoint; {again}")
    ranks = job.scenario.parts * job.scenario.trainers
    if all_here and checkpoint.last_complete(job.checkpoint_dir, ranks) is None:
        raise CheckpointError(nothing_to_go_on_from(run_dir))
    return job


@contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Hold a run's directory.

    Raises:
        UsageError: another process trains it.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    busy = UsageError(f"another process trains {run_dir}; wait for its end, or end it first")
    with held(run_dir / _LOCK, busy):
        yield


def note_start(run_dir: Path, after: str, epoch: int | None) -> None:
    """Put down that a run starts again: after what, and from the end of which epoch."""
    line = {"at": time.time(), "after": after, "epoch": epoch}
    with (run_dir / _STARTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def logs_of_start(run_dir: Path) -> Path:
    """Where the roles of this start write: what those of an earlier one said last is kept."""
    number = len(later_starts(run_dir))
    return run_dir / "logs" / f"start={number + 1}" if number else run_dir / "logs"


def nothing_to_go_on_from(run_dir: Path) -> str:
    """In words, that a run has no whole checkpoint."""
    return (
        f"{run_dir} has no checkpoint that is whole: it ended before the end of its first epoch, "
        "or what it kept is damaged; run it from the beginning"
    )


def later_starts(run_dir: Path) -> list[dict[str, Any]]:
    """What :func:`note_start` put down; a last line that a crash cut short is left out."""
    try:
        text = (run_dir / _STARTS).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


class Gathering:
    """Brings checkpoints here from hosts that share no folder, so that a host can be lost.

    In a thread of its own: whoever looks after the run must not wait for a copy.

    Args:
        folder: of the checkpoints here.
        ranks: how many there are.
    """

    def __init__(self, folder: Path, ranks: int, cluster: Cluster) -> None:
        self._folder, self._ranks, self._cluster = folder, range(ranks), cluster
        self._complete: list[int] = []
        self._thread: threading.Thread | None = None

    def kept(self, epoch: int) -> None:
        """Every rank has its part of this epoch's checkpoint."""
        self._complete.append(epoch)
        if self._cluster.with_launcher or (self._thread is not None and self._thread.is_alive()):
            return  # all is here; or the next epoch's copy brings this one
        self._thread = threading.Thread(target=self.gather, name="rudder-gather", daemon=True)
        self._thread.start()

    def gather(self) -> None:
        """Bring what can be brought; what cannot is told."""
        complete = list(self._complete)
        try:
            self._folder.mkdir(exist_ok=True)
            self._cluster.collect(self._folder)
            if complete:
                checkpoint.keep_last(self._folder, complete, self._ranks)
        except (ClusterError, OSError) as error:
            _log.warning("a checkpoint was not copied to this machine: %s", error)

    def close(self) -> None:
        """Wait for a copy that goes on, then bring what is left."""
        if self._cluster.with_launcher:
            return
        if self._thread is not None:
            self._thread.join()
        self.gather()


def deliver_checkpoint(job: Job, cluster: Cluster) -> None:
    """Have what each host's ranks go on from on their hosts.

    Raises:
        PreflightError: a host did not get it.
    """
    if job.resume is None:
        return
    folder, own = job.checkpoint_dir, job.scenario.trainers
    names = [
        [
            str(path.relative_to(folder))
            for rank in range(host.index * own, (host.index + 1) * own)
            for path in checkpoint.files(folder, job.resume, rank)
        ]
        for host in cluster.hosts
    ]
    cluster.deliver(folder, names)
