"""One run through a trace: all trainers in step, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from rudder.engine import RunOptions
from rudder.replay.clock import TimeModel
from rudder.replay.loaded import Loaded
from rudder.replay.trainer import ReplayTrainer
from rudder.result import MinibatchRow, RunResult, minibatch_table
from rudder.steering import Resolved, Tally, build_controller, read_decisions
from rudder.summary import summarise
from rudder.trace import Trace

MODELLED = ("epoch_seconds", "stall_seconds")
"""Summary keys whose values come from the model of time."""
_CHUNK = 1024


class ReplayRun:
    """Replays a trace once, with :meth:`go`; then :meth:`result`.

    Args:
        trace: opened.
        run: scenario and controller.
        time: model of time.
        latency_s: modelled seconds per answer; None = as long as it really takes.
        options: of the engine.
        record_decisions: append them to files in the run's directory, and return them.
        loaded: what controllers share, from earlier replays.
    """

    def __init__(
        self,
        trace: Trace,
        run: Resolved,
        time: TimeModel,
        latency_s: float | None,
        options: RunOptions,
        record_decisions: bool,
        loaded: Loaded,
    ) -> None:
        self._loaded = loaded
        self.trace, self.run, self.time, self.latency_s = trace, run, time, latency_s
        self.options, self.record_decisions = options, record_decisions
        self.length = trace.common_length
        self.trainers: list[ReplayTrainer] = []
        self.steering = Tally()
        self.epoch_seconds: list[list[float]] = [[] for _ in trace.ranks]
        self._epoch_start = 0.0
        self._rows: list[list[MinibatchRow]] = [[] for _ in trace.ranks]
        self._tables: list[list[pa.Table]] = [[] for _ in trace.ranks]

    def go(self) -> None:
        """Start the trainers, replay, and end them."""
        controller = build_controller(self.run.spec)
        loaded = self._loaded.of(controller, self.run.spec, self.options.progress)
        with ExitStack() as stack:
            for rank in self.trace.ranks:
                trainer = ReplayTrainer(
                    rank, self.trace, self.length, self.run, self.time,
                    latency_s=self.latency_s, plugins=self.options.plugins,
                    decisions_path=self._journal(rank) if self.record_decisions else None,
                    loaded=loaded,
                )  # fmt: skip
                stack.callback(trainer.close)
                self.trainers.append(trainer)
            self._minibatches()
            self.steering = Tally.merge(trainer.close() for trainer in self.trainers)

    def _journal(self, rank: int) -> Path:
        return self.options.run_dir / "ranks" / f"decisions-rank={rank}.jsonl"

    def _minibatches(self) -> None:
        every = max(self.length // 100, 1)
        epoch = self.trainers[0].next_epoch
        for step in range(self.length):
            if (coming := self.trainers[0].next_epoch) != epoch:
                epoch = coming
                self._end_epoch()
            self._step()
            if len(self._rows[0]) == _CHUNK:
                self._flush()
            if step % every == 0:
                self.options.progress("replay", step / self.length)
        if self.trace.complete:  # else the last epoch was cut short
            self._end_epoch()
        self._flush()
        self.options.progress("replay", 1.0)

    def _step(self) -> None:
        pulled = [trainer.pull() for trainer in self.trainers]
        slowest = max(computed for _, computed in pulled)
        for trainer, (row, computed) in zip(self.trainers, pulled, strict=True):
            trainer.train(row, slowest if self.time.barrier else computed)
            self._rows[trainer.rank].append(row)

    def _end_epoch(self) -> None:
        """Every epoch starts for all trainers together."""
        end = max(trainer.clock.trained for trainer in self.trainers)
        for trainer in self.trainers:
            seconds = trainer.clock.trained - self._epoch_start
            self.epoch_seconds[trainer.rank].append(seconds)
            trainer.clock.begin_epoch(end)
        self._epoch_start = end

    def _flush(self) -> None:
        """Turn rows into tables, which take a fraction of their memory."""
        for rank, rows in enumerate(self._rows):
            if rows:
                self._tables[rank].append(minibatch_table(rows))
        self._rows = [[] for _ in self.trainers]

    def result(self) -> RunResult:
        """What came of it, not saved yet."""
        table = pa.concat_tables([part for tables in self._tables for part in tables])
        summary = summarise(
            table,
            filled=sum(t.filled for t in self.trainers),
            row_bytes=self.trace.manifest.feature_bytes,
            epoch_seconds=self.epoch_seconds if self.epoch_seconds[0] else None,
            steering=self.steering,
            test_metric=None,
            run_id=self.options.run_dir.name,
        )
        summary |= compared(self.trainers, summary["fetched"])
        decisions: list[dict[str, Any]] = []
        if self.record_decisions:
            for rank in self.trace.ranks:
                found = read_decisions(self._journal(rank))
                decisions += [{"rank": rank, **decision} for decision in found]
        return RunResult(
            self.run.scenario, self.run.spec, table, decisions,
            {**summary, "modelled": list(MODELLED)}, self._details(), self.options.run_dir,
        )  # fmt: skip

    def _details(self) -> dict[str, Any]:
        return {
            "epochs": [
                [{"epoch": epoch, "seconds": seconds} for epoch, seconds in enumerate(of_rank)]
                for of_rank in self.epoch_seconds
            ],
            "steering": self.steering.to_dict(),
            "capacity": [t.capacity for t in self.trainers],
            "min_hits": [t.minimum.hits for t in self.trainers],
            "min_replaced": [t.minimum.replaced for t in self.trainers],
            "trace": str(self.trace.folder),
            "trace_id": self.trace.manifest.trace_id,
            "minibatches": self.length,
            "latency_s": self.latency_s,
        }


def compared(trainers: Sequence[ReplayTrainer], fetched: int) -> dict[str, Any]:
    """What a run fetched against what could have been: rows over trainers, and ratios.

    - ``min_fetched``, ``regret``: by MIN from the same fill, and the run's rows / these;
    - ``min_from_empty_fetched``: by MIN from an empty buffer, so that its fill is counted;
    - ``best_static_fetched``: beside the best set that never changes, its fill not counted;
    - ``communication_vs_no_buffer``: the run's rows / all remote rows sampled.
    """
    least = sum(t.minimum.fetched for t in trainers)
    return {
        "min_fetched": least,
        "regret": ratio(fetched, least),
        "min_from_empty_fetched": sum(t.minimum_from_empty.fetched for t in trainers),
        "best_static_fetched": sum(t.static.fetched(t.capacity) for t in trainers),
        "communication_vs_no_buffer": ratio(fetched, sum(t.minimum.sampled for t in trainers)),
    }


def ratio(value: float, reference: float) -> float | None:
    """``value / reference``; 1 where both are 0, None where only the reference is."""
    if not reference:
        return None if value else 1.0
    return value / reference
