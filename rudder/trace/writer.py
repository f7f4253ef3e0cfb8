"""Writing a trace: each rank its own directory, in parts that are closed early and renamed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rudder.errors import PathTakenError, TraceError
from rudder.partition import Partition
from rudder.trace.format import (
    MAX_BYTES,
    MAX_ROWS,
    SCHEMA,
    SCHEMA_VERSION,
    Ids,
    Manifest,
    RankFacts,
    TraceRow,
    degree_path,
    halo_path,
    part_file,
    rank_folder,
    written,
)


def check_free(folder: Path) -> None:
    """Raises PathTakenError: something lies where a trace is to be made."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise PathTakenError(f"{folder} is there and not empty; choose another place or delete it")


def start_trace(
    folder: Path, manifest: Manifest, halos: Iterable[Ids], degree: npt.NDArray[np.int32]
) -> None:
    """Make a trace's directory with what all ranks share: manifest, halos and degrees.

    Halos and degrees let a replay fill its buffer without the partition.

    Args:
        halos: of each part, int64, ascending.
        degree: int32 ``[N]`` by id.

    Raises:
        PathTakenError: something lies there already.
        TraceError: it cannot be made.
    """
    check_free(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        degree_path(folder).parent.mkdir()
    except OSError as error:
        raise TraceError(f"cannot make the trace {folder}: {error.strerror}") from error
    for part, halo in enumerate(halos):
        table = pa.table({"id": pa.array(halo, pa.int64())})
        _write(table, halo_path(folder, part), {"id": "DELTA_BINARY_PACKED"})
    degrees = pa.table({"degree": pa.array(np.asarray(degree), pa.int32())})
    _write(degrees, degree_path(folder), {"degree": "DELTA_BINARY_PACKED"})
    manifest.save(folder)


def start_partition_trace(folder: Path, manifest: Manifest, partition: Partition) -> None:
    """:func:`start_trace` with the halos and degrees of a partition."""
    halos = (partition.halo(part) for part in range(partition.parts))
    start_trace(folder, manifest, halos, partition.degree())


class TraceWriter:
    """Appends one rank's minibatches. Memory: one part.

    A part is closed and renamed after 256 minibatches or 64 MB of ids, so that a process that dies
    loses the open part at most.

    Args:
        folder: a trace that :func:`start_trace` made.
        manifest: the one it was made with.
        facts: of this rank.

    Raises:
        TraceError: the rank has been recorded there already.
    """

    def __init__(self, folder: Path, manifest: Manifest, facts: RankFacts) -> None:
        self.folder = rank_folder(folder, facts.rank)
        self.facts = facts
        self._trace_id = manifest.trace_id
        try:
            self.folder.mkdir()
        except OSError as error:
            raise TraceError(f"cannot record into {self.folder}: {error.strerror}") from error
        facts.save(self.folder, self._trace_id)
        self._rows: list[TraceRow] = []
        self._bytes = 0
        self._parts = 0
        self._step = 0
        self._epoch = 0
        self._closed = False

    def append(self, row: TraceRow) -> None:
        """Add the next minibatch; its ids are copied when the part is closed.

        Raises:
            TraceError: out of order, ids not ascending, a count or seconds below 0 or not finite,
                the writer is closed, or the part cannot be written.
        """
        ids = row.remote_ids
        if self._closed:
            raise TraceError(f"{self.folder} is closed; nothing can be appended")
        if row.step != self._step or row.epoch < self._epoch:
            raise TraceError(
                f"{self.folder}: minibatch {row.step} of epoch {row.epoch} came where {self._step} "
                f"of epoch {self._epoch} or later was due; append in order of steps from 0"
            )
        if ids.dtype != np.int64 or ids.ndim != 1 or (np.diff(ids) <= 0).any():
            raise TraceError(
                f"{self.folder}, minibatch {row.step}: remote_ids must be int64, 1-D and ascending "
                f"without repeats; found {ids.dtype} {ids.shape}"
            )
        measured = (row.local, row.seeds, row.sample_s, row.fetch_s, row.compute_s, row.stall_s)
        if not all(0 <= value < np.inf for value in measured):
            raise TraceError(
                f"{self.folder}, minibatch {row.step}: counts and seconds must be finite and 0 or "
                f"more (0 = not measured); found {measured}"
            )
        self._step, self._epoch = row.step + 1, row.epoch
        self._rows.append(row)
        self._bytes += ids.nbytes
        if len(self._rows) >= MAX_ROWS or self._bytes >= MAX_BYTES:
            self._close_part()

    def close(self) -> None:
        """Close the last part and note that the recording is whole. Once is enough."""
        if self._closed:
            return
        self._close_part()
        self._closed = True
        replace(self.facts, rows=self._step).save(self.folder, self._trace_id)

    def _close_part(self) -> None:
        if not self._rows:
            return
        rows, self._rows, self._bytes = self._rows, [], 0
        ends = np.cumsum([0, *(row.remote_ids.size for row in rows)])
        ids = pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), pa.array(np.concatenate([r.remote_ids for r in rows]))
        )
        columns = [
            ids if field.name == "remote_ids" else pa.array([getattr(r, field.name) for r in rows],
                                                            field.type)
            for field in SCHEMA
        ]  # fmt: skip
        facts = {
            "rudder.trace": self._trace_id,
            "rudder.schema_version": str(SCHEMA_VERSION),
            "rudder.rank": str(self.facts.rank),
            "rudder.first_step": str(rows[0].step),
        }
        table = pa.table(columns, schema=SCHEMA.with_metadata(facts))
        encodings = {"remote_ids.list.element": "DELTA_BINARY_PACKED"}
        for name in ("epoch", "step", "local", "seeds"):
            encodings[name] = "DELTA_BINARY_PACKED"
        for name in ("sample_s", "fetch_s", "compute_s", "stall_s"):
            encodings[name] = "BYTE_STREAM_SPLIT"
        _write(table, self.folder / part_file(self._parts), encodings)
        self._parts += 1

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; after an error what was appended is kept, as a recording that did not end."""
        if error is None:
            self.close()
        else:
            self._close_part()


def _write(table: pa.Table, path: Path, encodings: dict[str, str]) -> None:
    """Encoded by deltas (ids are ascending), compressed, with checksums; then renamed."""
    with written(path) as scratch:
        pq.write_table(
            table, scratch, compression="zstd", compression_level=6, use_dictionary=False,
            column_encoding=encodings, write_page_checksum=True, write_statistics=False,
        )  # fmt: skip
