"""Reading a trace, part by part."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rudder.buffer import fill_ids
from rudder.errors import MissingPathError, TraceError
from rudder.scenario import Fill
from rudder.trace.format import (
    SCHEMA,
    SCHEMA_VERSION,
    Ids,
    Manifest,
    RankFacts,
    TraceRow,
    check_origin,
    check_rank,
    degree_path,
    halo_path,
    part_file,
    rank_folder,
)

_DAMAGE = (OSError, ValueError, pa.ArrowException)
"""What reading a damaged Parquet file can raise; names that are no text are a ValueError."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Part:
    path: Path
    first: int
    rows: int


class Trace:
    """A recorded trace. Opening reads manifests and footers only; use :meth:`open`.

    Attributes:
        folder: where it lies.
        manifest: what holds for all ranks.
        facts: what holds for each rank.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        facts: tuple[RankFacts, ...],
        parts: tuple[tuple[_Part, ...], ...],
    ) -> None:
        self.folder, self.manifest, self.facts = folder, manifest, facts
        self._parts = parts

    @classmethod
    def open(cls, folder: Path) -> Trace:
        """Open a trace and check that its files fit together.

        A recording that did not end opens up to the last closed part of each rank; a warning says
        so, and :attr:`complete` is false.

        Raises:
            MissingPathError: no such directory.
            TraceError: no trace, another schema version, a rank or a part missing in the middle,
                truncated or damaged, files of another trace, columns of other types, or nothing
                recorded.
        """
        folder = folder.resolve()
        if not folder.is_dir():
            raise MissingPathError(f"no trace at {folder}: there is no such directory")
        manifest = Manifest.load(folder)
        facts = tuple(
            RankFacts.load(rank_folder(folder, rank), manifest.trace_id, rank)
            for rank in range(manifest.ranks)
        )
        parts = tuple(
            _parts_of(rank_folder(folder, rank), manifest, facts[rank])
            for rank in range(manifest.ranks)
        )
        trace = cls(folder, manifest, facts, parts)
        if not trace.common_length:
            empty = [r for r in trace.ranks if not trace.length(r)]
            raise TraceError(
                f"{folder} holds no closed part of rank {', '.join(map(str, empty))}: the "
                "recorder ended too early; record it again"
            )
        if not trace.complete:
            _log.warning(
                "%s: the recorder did not end; it is read up to the last closed parts, minibatches "
                "per rank: %s of %s", folder, [trace.length(r) for r in trace.ranks],
                [sum(f.minibatches) for f in facts],
            )  # fmt: skip
        return trace

    @property
    def ranks(self) -> range:
        """Global ranks of the trainers."""
        return range(len(self.facts))

    @property
    def complete(self) -> bool:
        """The recorder ended on every rank."""
        return all(facts.rows is not None for facts in self.facts)

    def length(self, rank: int) -> int:
        """Minibatches of a rank."""
        return sum(part.rows for part in self._parts[rank])

    @property
    def common_length(self) -> int:
        """Minibatches that every rank has."""
        return min(self.length(rank) for rank in self.ranks)

    def minibatches(self, rank: int) -> Iterator[TraceRow]:
        """The minibatches of a rank in order. Memory: one part (256 minibatches, 64 MB of ids).

        ``remote_ids`` are read-only views into the part; keep a copy, not the view.

        Raises:
            TraceError: a damaged page, rows out of order, ids not ascending or not remote.
        """
        first, end = self.manifest.owned(self.manifest.part_of(rank))
        step, epoch = 0, 0
        for part in self._parts[rank]:
            for batch in _read(part.path, SCHEMA.names).to_batches():
                columns = _checked(part.path, batch, self.manifest.nodes, (first, end), step, epoch)
                yield from columns
                if columns:
                    step, epoch = columns[-1].step + 1, columns[-1].epoch

    def halo(self, part: int) -> Ids:
        """Remote nodes one hop from ``part``: int64, ascending."""
        path = halo_path(self.folder, part)
        ids: Ids = _column(path, "id", pa.int64(), self.manifest.halo_nodes[part])
        return ids

    def degree(self) -> npt.NDArray[np.int32]:
        """Degree of every node by id: int32 ``[N]``."""
        path = degree_path(self.folder)
        degree: npt.NDArray[np.int32] = _column(path, "degree", pa.int32(), self.manifest.nodes)
        return degree

    def beyond_halo(self, part: int) -> Ids:
        """Remote nodes that are not in the 1-hop halo of ``part``: int64, ascending."""
        first, end = self.manifest.owned(part)
        remote = np.concatenate(
            [np.arange(first, dtype=np.int64), np.arange(end, self.manifest.nodes, dtype=np.int64)]
        )
        return np.setdiff1d(remote, self.halo(part), assume_unique=True)

    def fill_ids(self, rank: int, fill: Fill, capacity: int, seed: int) -> Ids:
        """What a buffer of ``capacity`` rows holds at the start: as in a real run."""
        part = self.manifest.part_of(rank)
        beyond = None
        if capacity > self.manifest.halo_nodes[part]:
            beyond = self.beyond_halo(part)
        degree = self.degree() if fill == "degree" else np.empty(0, np.int32)
        return fill_ids(fill, capacity, self.halo(part), degree, beyond, seed)

    def check_matches(self, graph_digest: str, partition_digest: str) -> None:
        """Raises TraceError: the trace was recorded on another graph or another partition."""
        pairs = {
            "graph": (self.manifest.graph_digest, graph_digest),
            "partition": (self.manifest.partition_digest, partition_digest),
        }
        for what, (recorded, wanted) in pairs.items():
            if recorded != wanted:
                raise TraceError(
                    f"{self.folder} was recorded on another {what} (digest {recorded}) than this "
                    f"one (digest {wanted}); record it again or choose its own {what}"
                )


def _parts_of(folder: Path, manifest: Manifest, facts: RankFacts) -> tuple[_Part, ...]:
    """The closed parts of a rank, their footers checked."""
    # Numbers have five digits at least: shorter names come first.
    names = sorted((p.name for p in folder.glob("part-*.parquet")), key=lambda n: (len(n), n))
    parts: list[_Part] = []
    step = 0
    for number, name in enumerate(names):
        path = folder / name
        if name != part_file(number):
            raise TraceError(
                f"{folder} lacks {part_file(number)}, but has {names[-1]}: a part is missing in "
                "the middle; copy it anew or record it again"
            )
        part = _footer(path, manifest.trace_id, facts.rank)
        if part.first != step:
            raise TraceError(
                f"{path} starts at minibatch {part.first} where {step} was due: parts were swapped"
            )
        step += part.rows
        parts.append(part)
    if facts.rows is not None and step != facts.rows:
        raise TraceError(
            f"{folder} is truncated: its recorder wrote {facts.rows} minibatches, {step} are "
            "there; copy it anew or record it again"
        )
    return tuple(parts)


def _footer(path: Path, trace_id: str, rank: int) -> _Part:
    try:
        with pq.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
        facts = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    except _DAMAGE as error:
        raise _damaged(path, error) from error
    version = facts.get("rudder.schema_version")
    if version is None:
        raise TraceError(f"{path} is no part of a trace: it does not say which trace it is of")
    if version != str(SCHEMA_VERSION):
        raise TraceError(f"{path} has schema version {version}, this Rudder reads {SCHEMA_VERSION}")
    check_origin(path, facts.get("rudder.trace"), trace_id)
    check_rank(path, facts.get("rudder.rank"), rank)
    if not _same_types(schema):
        found = ", ".join(f"{field.name}: {field.type}" for field in schema)
        wanted = ", ".join(f"{field.name}: {field.type}" for field in SCHEMA)
        raise TraceError(f"{path} has the columns {found}; a trace has {wanted}")
    first = facts.get("rudder.first_step", "")
    if not first.isdecimal():
        raise TraceError(f"{path} does not say with which minibatch it starts: {first!r}")
    return _Part(path, int(first), rows)


def _same_types(schema: pa.Schema) -> bool:
    if schema.names != SCHEMA.names:
        return False
    return all(
        # the name of a list's items depends on who wrote the file
        found.type.value_type == wanted.type.value_type
        if pa.types.is_list(found.type) and pa.types.is_list(wanted.type)
        else found.type == wanted.type
        for found, wanted in zip(schema, SCHEMA, strict=True)
    )


def _read(path: Path, columns: list[str]) -> pa.Table:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read(columns=columns, use_threads=False)
    except _DAMAGE as error:
        raise _damaged(path, error) from error


def _column(path: Path, name: str, kind: pa.DataType, length: int) -> npt.NDArray[Any]:
    table = _read(path, [name])
    if table.schema.names != [name] or table.schema.field(name).type != kind:
        raise TraceError(f"{path} has no column {name!r} of type {kind}; record the trace again")
    if table.num_rows != length:
        raise TraceError(f"{path} has {table.num_rows} rows, the manifest says {length}")
    return _numpy(table.column(name).combine_chunks())


def _damaged(path: Path, error: Exception) -> TraceError:
    return TraceError(
        f"{path} is missing, truncated or damaged ({error}); copy it anew or record the trace again"
    )


def _numpy(array: pa.Array) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = array.to_numpy(zero_copy_only=True)
    return found


def _checked(
    path: Path, batch: pa.RecordBatch, nodes: int, owned: tuple[int, int], step: int, epoch: int
) -> list[TraceRow]:
    """The rows of a batch, checked all at once: this is on the way of every replayed id."""
    column = {name: batch.column(name) for name in SCHEMA.names}
    lists = column.pop("remote_ids")
    if any(array.null_count for array in (lists, lists.values, *column.values())):
        raise TraceError(f"{path} has missing values")
    for name, array in column.items():
        values = _numpy(array)
        if not ((values >= 0) & (values < np.inf)).all():
            raise TraceError(f"{path}: {name} must be finite and 0 or more (0 = not measured)")
    plain = {name: _numpy(array).tolist() for name, array in column.items()}
    ends = _numpy(lists.offsets)
    ids: Ids = _numpy(lists.values)
    epochs = np.array([epoch, *plain["epoch"]])
    if plain["step"] != list(range(step, step + batch.num_rows)) or (np.diff(epochs) < 0).any():
        raise TraceError(f"{path}: rows are out of order; minibatch {step} was due first")
    used = ids[ends[0] : ends[-1]]
    falls = np.flatnonzero(np.diff(used) <= 0) + 1 + ends[0]
    if not np.isin(falls, ends).all():
        raise TraceError(f"{path}: ids of a minibatch are not ascending or repeat")
    if used.size:
        local = (used >= owned[0]) & (used < owned[1])
        if used.min() < 0 or used.max() >= nodes or local.any():
            raise TraceError(
                f"{path}: an id is not a remote node of this rank: all lie in 0..{nodes - 1} and "
                f"outside of {owned[0]}..{owned[1] - 1}, which its own part holds"
            )
    return [
        TraceRow(remote_ids=ids[ends[i] : ends[i + 1]],
                 **{name: values[i] for name, values in plain.items()})
        for i in range(batch.num_rows)
    ]  # fmt: skip
