"""The engine ``replay``: a recorded trace through buffer, policy, steering and controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from rudder.buffer import resolve_capacity
from rudder.engine import Engine, RunOptions
from rudder.errors import ScenarioError
from rudder.registries import POLICIES
from rudder.replay.clock import RecordedTime, TimeModel
from rudder.replay.trainer import ReplayTrainer
from rudder.result import MinibatchRow, RunResult, minibatch_table
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.steering import Resolved, Tally, read_decisions, resolve
from rudder.summary import summarise
from rudder.trace import Trace

FREE = ("policy", "fill", "buffer", "prefetch_depth", "mode", "rate", "rate_at", "seed")
"""Scenario fields that a replay may change; the trace fixes the others."""
MODELLED = ("epoch_seconds", "stall_seconds")
"""Summary keys whose values come from the model of time."""
_CHUNK = 1024

MakeTime = Callable[[Trace, Scenario], TimeModel]


def recorded_time(trace: Trace, scenario: Scenario) -> TimeModel:
    """The model of time that is used unless another is given."""
    return RecordedTime(scenario, trace.manifest.feature_bytes)


class ReplayEngine(Engine):
    """Replays one trace, as often as asked.

    The trainers go through the trace in step, each with its own buffer and controller, seeded
    alike. Counts are exact; seconds are modelled. Memory: buffers, a part of the trace per rank,
    some integers per node of the graph and the run's own tables.

    Args:
        trace: opened, or where it lies.
        make_time: builds the model of time for a scenario.
        measure_latency: an answer takes as long as it really takes; else the controller's
            ``latency_s``, without one 0 s.
        record_decisions: write decisions to the run's directory and return them. They are the
            most of a long run's result.
    """

    name = "replay"

    def __init__(
        self,
        trace: Trace | Path | str,
        *,
        make_time: MakeTime = recorded_time,
        measure_latency: bool = False,
        record_decisions: bool = True,
    ) -> None:
        self.trace = trace if isinstance(trace, Trace) else Trace.open(Path(trace))
        self._make_time = make_time
        self._measure_latency = measure_latency
        self._record_decisions = record_decisions

    @property
    def scenario(self) -> Scenario:
        """What was recorded."""
        return self.trace.manifest.scenario

    def run(self, scenario: Scenario, controller: Spec, options: RunOptions) -> RunResult:
        """Replay under a controller; ``verify`` and the partitions of ``options`` play no part.

        Raises:
            ScenarioError: a field that the trace fixes was changed.
            CapacityError, SpecError, UnknownNameError, ControllerError: as in real training.
            TraceError: the trace is damaged.
        """
        run = resolve(scenario, controller)
        self._check(run.scenario)
        time = self._make_time(self.trace, run.scenario)
        replay = _Replay(self.trace, run, time, self._latency(run), options, self._record_decisions)
        with ExitStack() as stack:
            replay.start(stack)
            replay.go()
        return replay.result()

    def _latency(self, run: Resolved) -> float | None:
        if self._measure_latency:
            return None
        return run.latency_s or 0.0

    def _check(self, scenario: Scenario) -> None:
        recorded, manifest = self.scenario, self.trace.manifest
        changed = [
            name
            for name in Scenario.model_fields
            if name not in FREE and getattr(scenario, name) != getattr(recorded, name)
        ]
        if changed:
            told = ", ".join(
                f"{n} = {getattr(scenario, n)!r} (recorded: {getattr(recorded, n)!r})"
                for n in changed
            )
            raise ScenarioError(
                f"{told}: {self.trace.folder} fixes this; a replay may change {', '.join(FREE)}. "
                "Record another trace for it"
            )
        POLICIES.check(scenario.policy)
        for part, halo in enumerate(manifest.halo_nodes):
            resolve_capacity(scenario.buffer, halo, manifest.remote_nodes(part))


class _Replay:
    """One run through the trace."""

    def __init__(
        self,
        trace: Trace,
        run: Resolved,
        time: TimeModel,
        latency_s: float | None,
        options: RunOptions,
        record_decisions: bool,
    ) -> None:
        self.trace, self.run, self.time, self.latency_s = trace, run, time, latency_s
        self.options, self.record_decisions = options, record_decisions
        self.length = trace.common_length
        self.trainers: list[ReplayTrainer] = []
        self.tallies: list[Tally] = []
        self.rows: list[list[MinibatchRow]] = [[] for _ in trace.ranks]
        self.tables: list[list[pa.Table]] = [[] for _ in trace.ranks]
        self.epochs: list[list[float]] = [[] for _ in trace.ranks]
        self.epoch_start = 0.0

    def decisions_path(self, rank: int) -> Path:
        return self.options.run_dir / "ranks" / f"decisions-rank={rank}.jsonl"

    def start(self, stack: ExitStack) -> None:
        for rank in self.trace.ranks:
            trainer = ReplayTrainer(
                rank, self.trace, self.length, self.run, self.time, latency_s=self.latency_s,
                plugins=self.options.plugins,
                decisions_path=self.decisions_path(rank) if self.record_decisions else None,
            )  # fmt: skip
            stack.callback(trainer.close)
            self.trainers.append(trainer)

    def go(self) -> None:
        """All minibatches of all trainers, in step."""
        every = max(self.length // 100, 1)
        epoch = self.trainers[0].next_epoch
        for step in range(self.length):
            if (coming := self.trainers[0].next_epoch) != epoch:
                epoch = coming
                self._end_epoch()
            self._step()
            if len(self.rows[0]) == _CHUNK:
                self._flush()
            if step % every == 0:
                self.options.progress("replay", step / self.length)
        if self.trace.complete:  # else the last epoch was cut short
            self._end_epoch()
        self._flush()
        self.options.progress("replay", 1.0)
        self.tallies = [trainer.close() for trainer in self.trainers]

    def _step(self) -> None:
        pulled = [trainer.pull() for trainer in self.trainers]
        slowest = max(computed for _, computed in pulled)
        for trainer, (row, computed) in zip(self.trainers, pulled, strict=True):
            trainer.train(row, slowest if self.time.barrier else computed)
            self.rows[trainer.rank].append(row)

    def _end_epoch(self) -> None:
        """Every epoch starts for all trainers together."""
        end = max(trainer.clock.trained for trainer in self.trainers)
        for trainer in self.trainers:
            self.epochs[trainer.rank].append(trainer.clock.trained - self.epoch_start)
            trainer.clock.begin_epoch(end)
        self.epoch_start = end

    def _flush(self) -> None:
        """Turn rows into tables, which take a tenth of the memory."""
        for rank, rows in enumerate(self.rows):
            if rows:
                self.tables[rank].append(minibatch_table(rows))
        self.rows = [[] for _ in self.trainers]

    def result(self) -> RunResult:
        ranks, trainers = self.trace.ranks, self.trainers
        table = pa.concat_tables([part for parts in self.tables for part in parts])
        steering = Tally.merge(self.tallies)
        summary = summarise(
            table,
            filled=sum(t.filled for t in trainers),
            row_bytes=self.trace.manifest.feature_bytes,
            epoch_seconds=self.epochs if self.epochs[0] else None,
            steering=steering,
            test_metric=None,
            run_id=self.options.run_dir.name,
        )
        decisions: Sequence[Mapping[str, Any]] = [
            {"rank": rank, **decision}
            for rank in ranks
            if self.record_decisions
            for decision in read_decisions(self.decisions_path(rank))
        ]
        result = RunResult(
            self.run.scenario, self.run.spec, table, decisions,
            {**summary, **compared(trainers, summary["fetched"]), "modelled": list(MODELLED)},
            self._details(steering), self.options.run_dir,
        )  # fmt: skip
        result.save(self.options.run_dir)
        return result

    def _details(self, steering: Tally) -> dict[str, Any]:
        manifest = self.trace.manifest
        return {
            "epochs": [
                [{"epoch": epoch, "seconds": seconds} for epoch, seconds in enumerate(of_rank)]
                for of_rank in self.epochs
            ],
            "steering": steering.to_dict(),
            "capacity": [t.capacity for t in self.trainers],
            "min_hits": [t.minimum.hits for t in self.trainers],
            "min_replaced": [t.minimum.replaced for t in self.trainers],
            "trace": str(self.trace.folder),
            "trace_id": manifest.trace_id,
            "minibatches": self.length,
            "latency_s": self.latency_s,
        }


def compared(trainers: Sequence[ReplayTrainer], fetched: int) -> dict[str, Any]:
    """What a run fetched against what could have been: counts of rows over trainers, and ratios.

    - ``min_fetched``, ``regret``: by MIN from the same fill, and the run's rows / these;
    - ``best_static_fetched``: beside the best set that never changes;
    - ``communication_vs_no_buffer``: the run's rows / all remote rows sampled.
    """
    least = sum(t.minimum.fetched for t in trainers)
    return {
        "min_fetched": least,
        "regret": ratio(fetched, least),
        "best_static_fetched": sum(t.static.fetched(t.capacity) for t in trainers),
        "communication_vs_no_buffer": ratio(fetched, sum(t.minimum.sampled for t in trainers)),
    }


def ratio(fetched: int, reference: int) -> float | None:
    """None where there is nothing to compare with; 1 where both are nothing."""
    if not reference:
        return None if fetched else 1.0
    return fetched / reference
