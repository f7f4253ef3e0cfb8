"""What lies in a trace's directory: names, columns, and the two kinds of facts."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rudder.errors import ScenarioError, TraceError
from rudder.partition import Partition
from rudder.scenario import Scenario

Ids = npt.NDArray[np.int64]
Recorder = Literal["distdgl", "sampler"]

SCHEMA_VERSION = 1
SUFFIX = ".trace"
MANIFEST_FILE = "manifest.json"
RANK_FILE = "rank.json"
MAX_ROWS = 256
MAX_BYTES = 64 * 10**6
"""A part is closed with so many minibatches or so many bytes of ids (before encoding)."""

SCHEMA = pa.schema(
    [
        ("epoch", pa.int32()),
        ("step", pa.int32()),
        ("remote_ids", pa.list_(pa.int64())),
        ("local", pa.int32()),
        ("seeds", pa.int32()),
        ("sample_s", pa.float64()),
        ("fetch_s", pa.float64()),
        ("compute_s", pa.float64()),
        ("stall_s", pa.float64()),
    ]
)


@dataclass(slots=True)
class TraceRow:
    """One minibatch of one trainer.

    Attributes:
        epoch, step: from 0; ``step`` counts over all epochs.
        remote_ids: int64, ascending: the distinct input nodes of the outermost block that another
            part owns.
        local: distinct input nodes that this trainer's part owns.
        seeds: seeds of the minibatch.
        sample_s, fetch_s, compute_s, stall_s: seconds sampling, pulling rows, in forward, backward
            and step, and waiting for the minibatch; 0 where the recorder measures none.
    """

    epoch: int
    step: int
    remote_ids: Ids
    local: int
    seeds: int
    sample_s: float = 0.0
    fetch_s: float = 0.0
    compute_s: float = 0.0
    stall_s: float = 0.0


@dataclass(frozen=True)
class Manifest:
    """What holds for all ranks of a trace. Written before recording starts.

    Attributes:
        trace_id: ties every file to this manifest.
        recorder: ``distdgl``, a real run, or ``sampler``, which measures no seconds.
        scenario: what was run; the part of it that steers the buffer does not matter here.
        graph_digest, partition_digest: as in :class:`rudder.partition.Partition`.
        nodes, edges: of the graph.
        feature_bytes: bytes of one feature row.
        part_nodes, halo_nodes: counts, one per part. Part ``p`` owns the ids from
            ``sum(part_nodes[:p])`` on: DistDGL numbers the nodes of a part in one range.
    """

    trace_id: str
    recorder: Recorder
    scenario: Scenario
    graph_digest: str
    partition_digest: str
    nodes: int
    edges: int
    feature_bytes: int
    part_nodes: tuple[int, ...]
    halo_nodes: tuple[int, ...]

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        partition: Partition,
        recorder: Recorder,
        trace_id: str | None = None,
    ) -> Manifest:
        """The manifest of a trace of ``scenario`` over ``partition``.

        Args:
            trace_id: None = drawn; a recorder that is repeatable gives one that is too.
        """
        return cls(
            trace_id=trace_id or secrets.token_hex(8),
            recorder=recorder,
            scenario=scenario,
            graph_digest=partition.graph_digest,
            partition_digest=partition.digest,
            nodes=partition.nodes,
            edges=partition.edges,
            feature_bytes=partition.feature_width * np.dtype(np.float32).itemsize,
            part_nodes=partition.part_nodes,
            halo_nodes=partition.halo_nodes,
        )

    @property
    def parts(self) -> int:
        return len(self.part_nodes)

    @property
    def ranks(self) -> int:
        """Trainers over all parts."""
        return self.parts * self.scenario.trainers

    def part_of(self, rank: int) -> int:
        """The part that a trainer's host owns."""
        return rank // self.scenario.trainers

    def owned(self, part: int) -> tuple[int, int]:
        """The range of ids that a part owns: first, and one past the last."""
        first = sum(self.part_nodes[:part])
        return first, first + self.part_nodes[part]

    def remote_nodes(self, part: int) -> int:
        """Nodes that other parts own."""
        return self.nodes - self.part_nodes[part]

    def save(self, folder: Path) -> None:
        values = {**asdict(self), "scenario": self.scenario.model_dump(mode="json")}
        write_json(folder / MANIFEST_FILE, values)

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read the manifest in a trace's directory.

        Raises:
            TraceError: missing, foreign, damaged, or of another schema version.
        """
        values = read_json(folder / MANIFEST_FILE)
        try:
            values["scenario"] = Scenario.make(**values["scenario"])
            for name in ("part_nodes", "halo_nodes"):
                values[name] = _counts(name, *values[name])
            for name in ("nodes", "edges", "feature_bytes"):
                _counts(name, values[name])
            manifest = cls(**values)
        except (KeyError, TypeError, ScenarioError) as error:
            raise TraceError(
                f"{folder / MANIFEST_FILE} is no manifest of a trace: {error}; record it again"
            ) from error
        if (
            manifest.nodes != sum(manifest.part_nodes)
            or manifest.parts != manifest.scenario.parts
            or manifest.parts != len(manifest.halo_nodes)
        ):
            raise TraceError(
                f"{folder / MANIFEST_FILE} contradicts itself: {manifest.nodes} nodes in parts of "
                f"{manifest.part_nodes}, halos of {manifest.halo_nodes}, scenario of "
                f"{manifest.scenario.parts} parts"
            )
        return manifest


@dataclass(frozen=True)
class RankFacts:
    """What holds for one rank of a trace.

    Attributes:
        rank: global rank of the trainer.
        minibatches: of each epoch, as planned before recording.
        seeds_digest: of the rank's training nodes (:func:`seeds_digest`).
        rows: minibatches recorded; None = the recorder did not end.
    """

    rank: int
    minibatches: tuple[int, ...]
    seeds_digest: str
    rows: int | None = None

    def save(self, folder: Path, trace_id: str) -> None:
        write_json(folder / RANK_FILE, {"trace_id": trace_id, **asdict(self)})

    @classmethod
    def load(cls, folder: Path, trace_id: str, rank: int) -> RankFacts:
        """Read the facts in a rank's directory.

        Raises:
            TraceError: missing, damaged, of another trace, rank or schema version.
        """
        if not folder.is_dir():
            raise TraceError(
                f"{folder} is missing: the recorder ended before it began rank {rank}, or its "
                "directory was not copied; copy it anew or record the trace again"
            )
        values = read_json(folder / RANK_FILE)
        check_origin(folder / RANK_FILE, values.pop("trace_id", None), trace_id)
        check_rank(folder / RANK_FILE, values.get("rank"), rank)
        try:
            if values["rows"] is not None:
                _counts("rows", values["rows"])
            return cls(**{**values, "minibatches": _counts("minibatches", *values["minibatches"])})
        except (KeyError, TypeError) as error:
            raise TraceError(f"{folder / RANK_FILE} does not describe a rank: {error}") from error


def seeds_digest(seeds: Ids) -> str:
    """SHA-256 over a rank's training nodes in ascending order, 16 hex digits."""
    ordered = np.sort(np.asarray(seeds, "<i8"))
    return hashlib.sha256(ordered.tobytes()).hexdigest()[:16]


def rank_folder(folder: Path, rank: int) -> Path:
    return folder / f"rank={rank}"


def part_file(number: int) -> str:
    return f"part-{number:05d}.parquet"


def halo_path(folder: Path, part: int) -> Path:
    """Ids of the 1-hop remote nodes of a part: column ``id`` int64, ascending."""
    return folder / "fill" / f"halo-{part}.parquet"


def degree_path(folder: Path) -> Path:
    """Degree of every node by id: column ``degree`` int32 ``[N]``."""
    return folder / "fill" / "degree.parquet"


def check_origin(path: Path, found: str | None, trace_id: str) -> None:
    """Raises TraceError: the file says that it belongs to another trace."""
    if found != trace_id:
        raise TraceError(
            f"{path} belongs to the trace {found!r}, the manifest beside it to {trace_id!r}; put "
            "the files of one recording together"
        )


def check_rank(path: Path, found: int | str | None, rank: int) -> None:
    """Raises TraceError: the file does not say that it is this rank's.

    One that says nothing is refused too: the ids of two trainers of one part look alike, so that
    nothing else would tell that they were mixed up.
    """
    if found is None:
        raise TraceError(f"{path} does not say of which rank it is; record the trace again")
    if str(found) != str(rank):
        raise TraceError(f"{path} is of rank {found}; files of two ranks were mixed up")


def _counts(name: str, *values: Any) -> tuple[int, ...]:
    """The values; TypeError: one is no count."""
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise TypeError(f"{name} must be counts, found {value!r}")
    return values


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Where to write a file's content, which then becomes ``path``: whole or not at all.

    Raises:
        TraceError: it cannot be written, such as on a full disk; nothing half is left.
    """
    scratch = path.with_name(path.name + ".part")
    try:
        yield scratch
        scratch.replace(path)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink()
        raise TraceError(f"cannot write {path}: {error.strerror or error}") from error


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write with the schema version; whole or not at all.

    Raises:
        TraceError: as :func:`written`.
    """
    text = json.dumps({"schema_version": SCHEMA_VERSION, **values}, indent=2) + "\n"
    with written(path) as scratch:
        scratch.write_text(text)


def read_json(path: Path) -> dict[str, Any]:
    """The inverse of :func:`write_json`.

    Raises:
        TraceError: missing, no JSON object, or of another schema version.
    """
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise TraceError(f"{path.parent} is no trace: no {path.name} ({error.strerror})") from error
    except ValueError as error:
        raise TraceError(f"{path} is damaged: {error}; record the trace again") from error
    version = values.pop("schema_version", None) if isinstance(values, dict) else None
    if version != SCHEMA_VERSION:
        raise TraceError(
            f"{path} has schema version {version!r}, this Rudder reads {SCHEMA_VERSION}; record "
            "the trace again"
        )
    found: dict[str, Any] = values
    return found
