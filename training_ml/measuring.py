"""What followed each decision of a collected run, and what would have followed the other one.

A run's access trace is replayed with the run's own answers fed back, so that the buffer goes
through the very states that it had. At each question that applied, at the minibatch at which its
answer took effect, both branches are rolled out; and where rows left the buffer, their later
accesses are counted. That this is the recorded run is checked, minibatch by minibatch.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rudder.engine import Progress
from rudder.errors import CollectionError, ResultError
from rudder.observation import SCHEMA_VERSION as OBSERVATION_SCHEMA
from rudder.observation import feature_names, feature_vector
from rudder.parallel import each
from rudder.plugins import PluginFile
from rudder.replay.ahead import Ahead
from rudder.replay.engine import ReplayEngine, recorded_time
from rudder.replay.oracle import KEEP, REPLACE
from rudder.replay.trainer import ReplayTrainer
from rudder.result import MinibatchRow, RunResult
from rudder.spec import Spec
from rudder.steering import Asked, rebuild, resolve
from rudder.steering.loop import WINDOW
from rudder.trace import Trace, TraceRow

from .collection import CollectedRun, Collection

MEASURED = pa.schema(
    [
        ("rank", pa.int32()),
        ("question", pa.int32()),
        ("minibatch", pa.int32()),
        ("replace", pa.bool_()),
        ("replaced", pa.int32()),
        ("looked", pa.int32()),
        ("keep_fetched", pa.int64()),
        ("replace_fetched", pa.int64()),
        ("window", pa.int32()),
        ("effect_hit_rate", pa.float64()),
        ("effect_fetch_s", pa.float64()),
        ("effect_left_access", pa.float64()),
        *((name, pa.float64()) for name in feature_names()),
    ]
)
"""One row per question that applied.

- ``minibatch``: step at which the answer applied; ``replace``: was it replace; ``replaced``: rows.
- ``looked``: minibatches that both branches were rolled out over, from that one on; 0 = they were
  not. ``keep_fetched``, ``replace_fetched``: rows fetched in each; replacement rows are in it.
- ``window``: minibatches before and after that are compared, as in
  :mod:`rudder.steering.context`; 0 = never settled, and the changes are NaN.
- ``effect_hit_rate``: change of the share; ``effect_fetch_s``: change of seconds per minibatch.
- ``effect_left_access``: change of the accesses per minibatch of a node that left: those in the
  ``window`` minibatches after the one at whose end it left, less those in as many up to it; NaN =
  none left, or none follows.
"""
_VERSION = "1"
"""Of how these are measured: what lies in a cache under another one is measured anew."""
_META, _UNAPPLIED, _POLICY = b"rudder.measured", b"rudder.unapplied", b"rudder.policy"

Columns = Mapping[str, npt.NDArray[Any]]
_log = logging.getLogger(__name__)


class Measured(NamedTuple):
    """A run's measurements.

    Attributes:
        table: of :data:`MEASURED`.
        unapplied: questions whose answer never applied: too late, invalid, or at the end.
        policy: replacement policy of the run.
    """

    table: pa.Table
    unapplied: int
    policy: str


def measure(run_dir: Path, trace: Path, horizon: int) -> Measured:
    """Measure a run.

    Args:
        run_dir: of the run, its decisions recorded.
        trace: the accesses that it went through.
        horizon: minibatches to roll both branches out over; 0 = do not.

    Raises:
        CollectionError: the trace does not repeat the run.
        ResultError, TraceError: one of them is incomplete or damaged.
        PairingError: the run's policy decides itself, so that there is nothing to label.
    """
    result = RunResult.load(run_dir)
    rows: dict[int, list[MinibatchRow]] = {}
    for fields in result.minibatches.to_pylist():
        rows.setdefault(fields["rank"], []).append(MinibatchRow(**fields))
    asked = list(rebuild(run_dir))
    engine = ReplayEngine(trace)
    answers = Spec("recorded", {"run": str(run_dir)})
    resolved = resolve(engine.check(result.scenario, answers)[0], answers)
    time = recorded_time(engine.trace, resolved.scenario)
    found: list[list[Any]] = []
    for rank in engine.trace.ranks:
        recorded = rows.get(rank, [])
        applied = {a.applied_at: a for a in asked if a.rank == rank and a.applied_at is not None}
        trainer = ReplayTrainer(rank, engine.trace, len(recorded), resolved, time)
        replay = _Rank(trainer, engine.trace, recorded, applied, horizon)
        with closing(trainer):
            found += replay.measure(run_dir)
    columns = [list(column) for column in zip(*found, strict=True)] or [[] for _ in MEASURED]
    unapplied = sum(a.applied_at is None for a in asked)
    return Measured(pa.table(columns, schema=MEASURED), unapplied, resolved.scenario.policy)


@dataclass
class _Rank:
    """One rank's replay."""

    trainer: ReplayTrainer
    trace: Trace
    recorded: Sequence[MinibatchRow]
    applied: Mapping[int, Asked]
    horizon: int

    def measure(self, run_dir: Path) -> Iterator[list[Any]]:
        rank = self.trainer.rank
        if self.trace.length(rank) < len(self.recorded):
            raise CollectionError(
                f"{run_dir} has {len(self.recorded)} minibatches of rank {rank}, its trace "
                f"{self.trace.folder} {self.trace.length(rank)}; collect that run again"
            )
        accesses = Ahead(self.trace.minibatches(rank), len(self.recorded))
        past: deque[TraceRow] = deque(maxlen=WINDOW)
        for row in self.recorded:
            asked = self.applied.get(row.step)
            branches = self._branches() if asked is not None else (0, 0, 0)
            leaving = asked is not None and row.replaced > 0
            before = self.trainer.buffered() if leaving else None
            self._pull(row, run_dir)
            past.append(accesses.next())
            if asked is None:
                continue
            window = 0 if asked.effect is None else int(asked.effect["window"])
            changes = [np.nan, np.nan, np.nan]
            if asked.effect is not None:
                changes[0] = float(asked.effect["hit_rate_change"])
                changes[1] = self._fetch_s_change(row.step, window)
                if before is not None:
                    left = self._left(before)
                    follow = itertools.islice(accesses.look(), window)
                    changes[2] = access_change(left, list(past)[-window:], list(follow))
            yield [
                rank, asked.observation.index, row.step, asked.decision.replace, row.replaced,
                *branches, window, *changes, *feature_vector(asked.observation),
            ]  # fmt: skip

    def _branches(self) -> tuple[int, int, int]:
        """Minibatches looked at, and rows fetched after keep and after replace."""
        if not self.horizon:
            return 0, 0, 0
        keep = self.trainer.roll_out(KEEP, KEEP, self.horizon)
        replace = self.trainer.roll_out(REPLACE, KEEP, self.horizon)
        return keep.minibatches, keep.fetched, replace.fetched

    def _pull(self, recorded: MinibatchRow, run_dir: Path) -> None:
        row, computed = self.trainer.pull()
        self.trainer.train(row, computed)
        for name in ("remote_sampled", "hits", "replaced", "fetched"):
            if getattr(row, name) != getattr(recorded, name):
                raise CollectionError(
                    f"{run_dir} is not what its trace {self.trace.folder} gives: rank {row.rank}, "
                    f"minibatch {row.step} has {name} = {getattr(recorded, name)}, replayed "
                    f"{getattr(row, name)}; collect that run again"
                )

    def _fetch_s_change(self, step: int, window: int) -> float:
        """Seconds per minibatch, after against before, over the windows of the context."""
        before, after = (
            sum(row.fetch_s for row in self.recorded[start : start + window])
            for start in (step - window, step)
        )
        return (after - before) / window

    def _left(self, before: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Is each node of the graph one that has just left the buffer?"""
        left = np.zeros(self.trace.manifest.nodes, np.bool_)
        left[before] = True
        left[self.trainer.buffered()] = False
        return left


def access_change(
    left: npt.NDArray[np.bool_], before: Sequence[TraceRow], after: Sequence[TraceRow]
) -> float:
    """Change of the accesses per minibatch of a node that left; NaN if none left or none follows.

    Args:
        left: bool ``[N]``, by node.
        before: minibatches up to the one at whose end they left, at least one.
        after: those that follow.
    """
    nodes = int(np.count_nonzero(left))
    if not nodes or not after:
        return float("nan")
    was, now = (
        sum(int(np.count_nonzero(left[row.remote_ids])) for row in rows) / (len(rows) * nodes)
        for rows in (before, after)
    )
    return now - was


def measure_all(
    collection: Collection,
    horizon: int,
    jobs: int,
    progress: Progress,
    plugins: Sequence[PluginFile] = (),
) -> list[Measured]:
    """Measure every run of a collection, in its order; what was measured before is read.

    Args:
        jobs: processes; 1 = this one.

    Raises:
        RudderError: as :func:`measure`.
    """
    folder = collection.folder / "measured" / f"horizon={horizon}"
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [_Task.of(collection, run, folder, horizon) for run in collection.runs]
    found = [task.read() for task in tasks]
    due = [task for task, known in zip(tasks, found, strict=True) if known is None]
    if len(due) < len(tasks):
        _log.info("%d of %d runs were measured before", len(tasks) - len(due), len(tasks))
    finished = itertools.count(1)
    each(
        _measure, due, jobs, plugins,
        lambda: progress("replay both branches", next(finished) / len(due)),
    )  # fmt: skip
    return [known or task.expect() for task, known in zip(tasks, found, strict=True)]


class _Task(NamedTuple):
    """A run to measure, for a process of its own.

    Attributes:
        origin: of the run's decisions, so that a run that was made anew is measured anew.
    """

    run_dir: Path
    trace: Path
    horizon: int
    path: Path
    origin: str

    @classmethod
    def of(cls, collection: Collection, run: CollectedRun, folder: Path, horizon: int) -> _Task:
        run_dir = collection.run_dir(run)
        try:
            decisions = (run_dir / "decisions.jsonl").read_bytes()
        except OSError as error:
            raise ResultError(f"{run_dir} holds no decisions: {error}; collect again") from error
        origin = f"{_VERSION} {OBSERVATION_SCHEMA} {hashlib.sha256(decisions).hexdigest()}"
        return cls(run_dir, collection.trace(run), horizon, folder / f"{run.id}.parquet", origin)

    def go(self) -> None:
        found = measure(self.run_dir, self.trace, self.horizon)
        facts = {_META: self.origin, _UNAPPLIED: str(found.unapplied), _POLICY: found.policy}
        scratch = self.path.with_name(self.path.name + ".part")
        pq.write_table(found.table.replace_schema_metadata(facts), scratch)
        scratch.replace(self.path)

    def read(self) -> Measured | None:
        """What was measured before; None = nothing that still holds."""
        try:
            table = pq.read_table(self.path)
            facts = table.schema.metadata or {}
            if facts.get(_META) != self.origin.encode() or not table.schema.equals(MEASURED):
                return None
            return Measured(table, int(facts[_UNAPPLIED]), facts[_POLICY].decode())
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return None

    def expect(self) -> Measured:
        found = self.read()
        if found is None:
            raise CollectionError(f"{self.path} changed while it was made; label again")
        return found


def _measure(task: _Task) -> None:
    task.go()
