"""What a run leaves: one row per minibatch, the decisions, a summary; in memory and on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rudder.errors import ResultError, UsageError
from rudder.plain import plain
from rudder.scenario import Scenario
from rudder.spec import Spec

SCHEMA_VERSION = 1
ID_BYTES = 8
"""Bytes of a node id in a request for its row."""

MINIBATCH_SCHEMA = pa.schema(
    [
        ("rank", pa.int32()),
        ("epoch", pa.int32()),
        ("step", pa.int32()),
        ("seeds", pa.int32()),
        ("local", pa.int32()),
        ("remote_sampled", pa.int32()),
        ("hits", pa.int32()),
        ("misses", pa.int32()),
        ("replaced", pa.int32()),
        ("fetched", pa.int32()),
        ("stale_share", pa.float64()),
        ("occupancy", pa.float64()),
        ("sample_s", pa.float64()),
        ("fetch_s", pa.float64()),
        ("compute_s", pa.float64()),
        ("stall_s", pa.float64()),
        ("wait_decision_s", pa.float64()),
        ("bytes_features", pa.int64()),
        ("bytes_ids", pa.int64()),
        ("bytes_sampling", pa.int64()),
        ("bytes_gradients", pa.int64()),
        ("bytes_evaluation", pa.int64()),
        ("loss", pa.float64()),
    ]
)
"""Columns of the per-minibatch table. ``step`` counts within a trainer and is not reset at epochs;
``stale_share`` and ``occupancy`` are shares of the capacity after the minibatch."""


@dataclass(slots=True)
class MinibatchRow:
    """One row of :data:`MINIBATCH_SCHEMA`, filled while its minibatch passes through a trainer.

    Fields and columns are the same, in the same order. The pulling thread fills all but
    ``compute_s``, ``stall_s``, ``bytes_gradients`` and ``loss``, which training adds later.
    """

    rank: int
    epoch: int
    step: int
    seeds: int
    local: int
    remote_sampled: int
    hits: int
    misses: int
    replaced: int
    fetched: int
    stale_share: float
    occupancy: float
    sample_s: float = 0.0
    fetch_s: float = 0.0
    compute_s: float = 0.0
    stall_s: float = 0.0
    wait_decision_s: float = 0.0
    bytes_features: int = 0
    bytes_ids: int = 0
    bytes_sampling: int = 0
    bytes_gradients: int = 0
    bytes_evaluation: int = 0
    loss: float = float("nan")


def minibatch_table(rows: Iterable[MinibatchRow]) -> pa.Table:
    """The per-minibatch table of some rows, in the order given."""
    columns: dict[str, list[Any]] = {name: [] for name in MINIBATCH_SCHEMA.names}
    for row in rows:
        for name, column in columns.items():
            column.append(getattr(row, name))
    return pa.table(columns, schema=MINIBATCH_SCHEMA)


SUMMARY_KEYS = (
    "remote_sampled", "hits", "misses", "replaced", "fetched", "filled", "bytes_fetched",
    "hit_rate", "imbalance", "epoch_seconds", "stall_seconds", "test_metric", "decisions",
    "valid_share", "pass_at_1", "run_id",
)  # fmt: skip
"""Keys of every summary, in order of display. Null where meaningless."""


@dataclass(frozen=True)
class RunResult:
    """One finished run.

    Attributes:
        scenario, controller: what was asked for, fixed fields of the controller laid over.
        minibatches: table of :data:`MINIBATCH_SCHEMA`, in order of rank and step.
        decisions: one mapping per question asked, as in ``decisions.jsonl``.
        summary: :data:`SUMMARY_KEYS`, and what an engine adds.
        details: what else is worth keeping (metrics per epoch, hosts' counters, versions).
        run_dir: where it was written.
    """

    scenario: Scenario
    controller: Spec
    minibatches: pa.Table
    decisions: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]
    details: Mapping[str, Any] = field(default_factory=dict)
    run_dir: Path | None = None

    def save(self, folder: Path) -> None:
        """Write ``minibatches.parquet``, ``decisions.jsonl`` and ``run.json``, each whole.

        ``run.json`` comes last: its presence means that the run is complete.
        """
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / "minibatches.parquet", lambda p: pq.write_table(self.minibatches, p))
        lines = "".join(json.dumps(plain(d)) + "\n" for d in self.decisions)
        _replace(folder / "decisions.jsonl", lambda p: p.write_text(lines))
        head = {
            "schema_version": SCHEMA_VERSION,
            "scenario": self.scenario.model_dump(mode="json"),
            "controller": self.controller.to_dict(),
            "summary": dict(self.summary),
            "details": dict(self.details),
        }
        text = json.dumps(plain(head), indent=2) + "\n"
        _replace(folder / "run.json", lambda p: p.write_text(text))

    @classmethod
    def load(cls, folder: Path) -> RunResult:
        """Read a saved run.

        Raises:
            ResultError: a file is missing or damaged, or of another schema version.
        """
        try:
            head = json.loads((folder / "run.json").read_text())
            if head["schema_version"] != SCHEMA_VERSION:
                raise ResultError(
                    f"{folder} has schema version {head['schema_version']}, "
                    f"this Rudder reads {SCHEMA_VERSION}"
                )
            table = pq.read_table(folder / "minibatches.parquet")
            if table.schema.names != MINIBATCH_SCHEMA.names:
                raise ResultError(f"{folder / 'minibatches.parquet'} has other columns")
            lines = (folder / "decisions.jsonl").read_text().splitlines()
            return cls(
                Scenario.make(**head["scenario"]),
                Spec.parse(head["controller"]),
                table,
                [json.loads(line) for line in lines],
                head["summary"],
                head["details"],
                folder,
            )
        except (OSError, ValueError, KeyError, TypeError, UsageError) as error:
            raise ResultError(f"{folder} holds no complete run: {error}") from error


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    part = path.with_name(path.name + ".part")
    write(part)
    part.replace(path)
