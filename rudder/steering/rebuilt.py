"""The observations of a finished run, as its controllers were shown them.

A journal holds the window of each observation, not its history: that follows from the rows of the
run and the decisions that applied, by the same :class:`rudder.steering.context.ContextBuilder`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rudder.decision import Decision
from rudder.errors import ResultError
from rudder.observation import Observation, Task, Window
from rudder.result import MinibatchRow, RunResult
from rudder.steering.context import ContextBuilder
from rudder.steering.journal import read_decisions
from rudder.steering.loop import HISTORY, WINDOW


class Asked(NamedTuple):
    """One question of a run.

    Attributes:
        rank: global rank of the trainer.
        observation: what was shown.
        decision: the answer, or what stands for a missing one.
        applied_at: step of the first minibatch pulled under it; None = it never applied.
        effect: what followed, as in the journal; None = not settled.
    """

    rank: int
    observation: Observation
    decision: Decision
    applied_at: int | None
    effect: Mapping[str, Any] | None


def rebuild(run_dir: Path) -> Iterator[Asked]:
    """Every question of a run, in order of rank and time.

    Raises:
        ResultError: no complete run lies there, or one whose journals are gone or of another run.
    """
    table = RunResult.load(run_dir).minibatches
    journals = sorted((run_dir / "ranks").glob("decisions-rank=*.jsonl"))
    if not journals:
        raise ResultError(f"{run_dir} holds no journal of decisions under ranks/")
    rows: dict[int, list[MinibatchRow]] = {}
    for fields in table.to_pylist():
        row = MinibatchRow(**fields)
        rows.setdefault(row.rank, []).append(row)
    # By number: names of files sort rank 10 before rank 2.
    for task, path in sorted(((_task(path), path) for path in journals), key=lambda j: j[0].rank):
        if task.rank not in rows:
            raise ResultError(f"{path} is of rank {task.rank}, of which {run_dir} has no minibatch")
        context = ContextBuilder(task.facts.feature_bytes, HISTORY, WINDOW)
        yield from retrace(task, rows[task.rank], read_decisions(path), context)


def _task(path: Path) -> Task:
    try:
        with path.open(encoding="utf-8") as lines:
            return Task.from_dict(json.loads(next(lines)))
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise ResultError(f"{path} does not begin with the facts of its run: {error}") from error


def retrace(
    task: Task,
    rows: Sequence[MinibatchRow],
    records: Sequence[Mapping[str, Any]],
    context: ContextBuilder,
) -> Iterator[Asked]:
    """Every question of one trainer that was closed, in order.

    Args:
        rows: of all its minibatches.
        records: of its journal.
        context: a new one; when all have been given it is as it was after the last row.
    """
    applied = {r["applied_at"]: r for r in records if r["applied_at"] is not None}
    asked = {r["asked_at"]: r for r in records}
    for row in rows:
        if (record := applied.get(row.step)) is not None:
            context.applied(record["question"], Decision(**record["decision"]))
        context.add(row)
        if (record := asked.get(row.step + 1)) is not None:
            seen = record["observation"]
            observation = Observation(
                facts=task.facts,
                index=seen["index"],
                minibatch=seen["minibatch"],
                epoch=seen["epoch"],
                progress=seen["progress"],
                window=Window(**seen["window"]),
                history=context.history(),
                modelled_seconds=seen["modelled_seconds"],
            )
            decision = Decision(**record["decision"])
            yield Asked(task.rank, observation, decision, record["applied_at"], record["effect"])
