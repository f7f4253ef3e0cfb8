"""The trace format: what is written is read, and what is not whole is refused by name."""

from __future__ import annotations

import json
import logging
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rudder.buffer import fill_ids
from rudder.errors import MissingPathError, PathTakenError, TraceError
from rudder.scenario import Scenario
from rudder.trace import (
    Manifest,
    RankFacts,
    Trace,
    TraceRow,
    TraceWriter,
    reader,
    start_trace,
    writer,
)

NODES, OWN = 1000, 500
DEGREE = np.random.default_rng(0).integers(0, 40, NODES).astype(np.int32)
HALOS = (np.arange(600, 700), np.arange(0, 300, 3))


def manifest(trace_id: str = "here") -> Manifest:
    return Manifest(
        trace_id, "sampler", Scenario.make(parts=2, epochs=2), "graph-a", "partition-a", NODES, 7,
        400, (OWN, NODES - OWN), (100, 100),
    )  # fmt: skip


def row(step: int, ids: Sequence[int], epoch: int = 0, seconds: float = 0.25) -> TraceRow:
    return TraceRow(
        epoch, step, np.array(ids, np.int64), 7 + step, 3, seconds, seconds / 3, 2.0, 1e-9
    )


def record(
    folder: Path, rows: dict[int, list[TraceRow]], head: Manifest | None = None, close: bool = True
) -> Path:
    head = head or manifest()
    start_trace(folder, head, HALOS, DEGREE)
    for rank, mine in rows.items():
        facts = RankFacts(rank, (len(mine),), f"seeds-{rank}")
        recording = TraceWriter(folder, head, facts)
        for each in mine:
            recording.append(each)
        if close:
            recording.close()
    return folder


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_ROWS", 4)


@pytest.fixture
def trace(tmp_path: Path, small_parts: None) -> Path:
    """Two ranks of ten minibatches in parts of 4, 4 and 2."""
    return record(
        tmp_path / "some.trace",
        {
            0: [row(k, range(OWN + k, OWN + k + 20)) for k in range(10)],
            1: [row(k, range(k, k + 9)) for k in range(10)],
        },
    )


ids_of_rank_0 = st.lists(st.integers(OWN, NODES - 1), unique=True, max_size=30).map(sorted)


@settings(max_examples=40, deadline=None)
@given(
    minibatches=st.lists(ids_of_rank_0, min_size=1, max_size=12),
    seconds=st.floats(0, 1e6),
    per_part=st.integers(1, 5),
    max_bytes=st.integers(1, 500),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    minibatches: list[list[int]],
    seconds: float,
    per_part: int,
    max_bytes: int,
) -> None:
    rows = [row(k, ids, epoch=k // 5, seconds=seconds) for k, ids in enumerate(minibatches)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "MAX_ROWS", per_part)
        patch.setattr(writer, "MAX_BYTES", max_bytes)
        folder = record(tmp_path_factory.mktemp("t") / "x.trace", {0: rows, 1: [row(0, [1])]})
    trace = Trace.open(folder)
    assert trace.manifest == manifest()
    assert trace.complete
    assert (trace.length(0), trace.length(1), trace.common_length) == (len(rows), 1, 1)
    for found, wanted in zip(trace.minibatches(0), rows, strict=True):
        assert found.remote_ids.dtype == np.int64
        assert found.remote_ids.tolist() == wanted.remote_ids.tolist()
        for name in ("epoch", "step", "local", "seeds", "sample_s", "fetch_s", "compute_s",
                     "stall_s"):  # fmt: skip
            assert getattr(found, name) == getattr(wanted, name)


def test_files_lie_where_the_format_says(trace: Path) -> None:
    assert {str(p.relative_to(trace)) for p in trace.rglob("*") if p.is_file()} == {
        "manifest.json", "fill/degree.parquet", "fill/halo-0.parquet", "fill/halo-1.parquet",
        *(f"rank={r}/part-{n:05d}.parquet" for r in range(2) for n in range(3)),
        *(f"rank={r}/rank.json" for r in range(2)),
    }  # fmt: skip
    schema = pq.read_schema(trace / "rank=0" / "part-00000.parquet")
    assert schema.names == ["epoch", "step", "remote_ids", "local", "seeds", "sample_s", "fetch_s",
                            "compute_s", "stall_s"]  # fmt: skip
    assert [str(schema.field(n).type) for n in ("epoch", "local", "stall_s")] == [
        "int32", "int32", "double",
    ]  # fmt: skip
    assert schema.field("remote_ids").type.value_type == pa.int64()


def test_a_part_is_closed_and_named_when_it_is_full(tmp_path: Path, small_parts: None) -> None:
    head = manifest()
    start_trace(tmp_path / "t", head, HALOS, DEGREE)
    recording = TraceWriter(tmp_path / "t", head, RankFacts(0, (9,), "s"))
    seen = []
    for k in range(9):
        recording.append(row(k, [OWN]))
        seen.append(len(list((tmp_path / "t").glob("rank=0/part-*.parquet"))))
    assert seen == [0, 0, 0, 1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("capacity", [0, 40, 100, 350])
@pytest.mark.parametrize("fill", ["empty", "degree", "random"])
def test_fills_are_those_of_a_real_run(trace: Path, fill: Any, capacity: int) -> None:
    opened = Trace.open(trace)
    beyond = np.setdiff1d(np.arange(OWN), HALOS[1])
    for rank, others in ((0, None), (1, beyond)):
        if others is None and capacity > 100:
            others = np.setdiff1d(np.arange(OWN, NODES), HALOS[0])
        wanted = fill_ids(fill, capacity, HALOS[rank], DEGREE, others, seed=5)
        assert opened.fill_ids(rank, fill, capacity, seed=5).tolist() == wanted.tolist()


def test_a_killed_recorder_is_read_up_to_its_last_closed_part(
    tmp_path: Path, small_parts: None, caplog: pytest.LogCaptureFixture
) -> None:
    rows = {r: [row(k, [OWN if r == 0 else 1]) for k in range(10)] for r in range(2)}
    folder = record(tmp_path / "t", rows, close=False)
    (folder / "rank=0" / "part-00002.parquet.part").write_bytes(b"PAR1 half")
    with caplog.at_level(logging.WARNING):
        trace = Trace.open(folder)
    assert not trace.complete
    assert [trace.length(r) for r in trace.ranks] == [8, 8]
    assert [r.step for r in trace.minibatches(0)] == list(range(8))
    assert "did not end" in caplog.text
    assert "[8, 8] of [10, 10]" in caplog.text


def test_an_error_while_recording_keeps_what_was_appended(tmp_path: Path) -> None:
    head = manifest()
    start_trace(tmp_path / "t", head, HALOS, DEGREE)
    for rank, node in ((0, OWN), (1, 1)):
        recording = TraceWriter(tmp_path / "t", head, RankFacts(rank, (9,), "s"))
        with pytest.raises(KeyError):
            append_and_fail(recording, row(0, [node]))
    trace = Trace.open(tmp_path / "t")
    assert (trace.complete, trace.common_length) == (False, 1)


def append_and_fail(recording: TraceWriter, row: TraceRow) -> None:
    with recording:
        recording.append(row)
        raise KeyError


# Damage. Each function spoils the trace of the fixture in one way.


def truncate(trace: Path) -> None:
    path = trace / "rank=1" / "part-00001.parquet"
    path.write_bytes(path.read_bytes()[:-40])


def lose_a_part_in_the_middle(trace: Path) -> None:
    (trace / "rank=0" / "part-00001.parquet").unlink()


def lose_the_last_part(trace: Path) -> None:
    (trace / "rank=0" / "part-00002.parquet").unlink()


def lose_a_rank(trace: Path) -> None:
    for path in (trace / "rank=1").iterdir():
        path.unlink()
    (trace / "rank=1").rmdir()


def lose_the_manifest(trace: Path) -> None:
    (trace / "manifest.json").unlink()


def spoil_the_manifest(trace: Path) -> None:
    (trace / "manifest.json").write_text('{"schema_version": 1,')


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def another_schema(trace: Path) -> None:
    edit(trace / "manifest.json", schema_version=2)


def another_facts_schema(trace: Path) -> None:
    edit(trace / "rank=1" / "rank.json", schema_version=2)


def another_parts_schema(trace: Path) -> None:
    rewrite(trace, lambda table: table, {"rudder.schema_version": "2"})


def a_manifest_that_contradicts_itself(trace: Path) -> None:
    edit(trace / "manifest.json", nodes=NODES + 1)


def a_manifest_of_something_else(trace: Path) -> None:
    (trace / "manifest.json").write_text('{"schema_version": 1, "name": "app"}')


def a_manifest_of_no_counts(trace: Path) -> None:
    edit(trace / "manifest.json", part_nodes=["500", "500"])


def a_manifest_below_nothing(trace: Path) -> None:
    edit(trace / "manifest.json", part_nodes=[NODES + 1, -1])


def a_manifest_with_a_halo_less(trace: Path) -> None:
    edit(trace / "manifest.json", halo_nodes=[100])


def facts_of_no_counts(trace: Path) -> None:
    edit(trace / "rank=1" / "rank.json", rows="10")


def facts_of_no_rank(trace: Path) -> None:
    edit(trace / "rank=1" / "rank.json", rank=None)


def a_part_of_no_rank(trace: Path) -> None:
    """Two trainers of one part sample alike: only this tells that their parts were mixed up."""
    path = trace / "rank=0" / "part-00000.parquet"
    table = pq.read_table(path, partitioning=None)
    kept = {k: v for k, v in table.schema.metadata.items() if k != b"rudder.rank"}
    pq.write_table(table.replace_schema_metadata(kept), path)


def swap_the_parts(trace: Path) -> None:
    a, b = (trace / "rank=0" / f"part-0000{k}.parquet" for k in (0, 1))
    kept = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(kept)


def a_part_of_another_trace(trace: Path) -> None:
    other = record(trace.parent / "other", {0: [row(k, [OWN]) for k in range(4)]}, manifest("far"))
    (trace / "rank=0" / "part-00000.parquet").write_bytes(
        (other / "rank=0" / "part-00000.parquet").read_bytes()
    )


def a_rank_of_another_trace(trace: Path) -> None:
    edit(trace / "rank=0" / "rank.json", trace_id="far")


def another_ranks_part(trace: Path) -> None:
    part = (trace / "rank=1" / "part-00000.parquet").read_bytes()
    (trace / "rank=0" / "part-00000.parquet").write_bytes(part)


def another_ranks_facts(trace: Path) -> None:
    facts = (trace / "rank=1" / "rank.json").read_bytes()
    (trace / "rank=0" / "rank.json").write_bytes(facts)


def rewrite(
    trace: Path, change: Callable[[pa.Table], pa.Table], facts: dict[str, str] | None = None
) -> None:
    path = trace / "rank=0" / "part-00000.parquet"
    table = pq.read_table(path, partitioning=None)
    kept = {k.decode(): v.decode() for k, v in table.schema.metadata.items()}
    pq.write_table(change(table).replace_schema_metadata({**kept, **(facts or {})}), path)


def other_types(trace: Path) -> None:
    rewrite(trace, lambda t: t.set_column(3, "local", t.column("local").cast(pa.int64())))


def a_column_less(trace: Path) -> None:
    rewrite(trace, lambda t: t.drop_columns(["stall_s"]))


def a_foreign_parquet_file(trace: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), trace / "rank=0" / "part-00000.parquet")


def rows_out_of_order(trace: Path) -> None:
    rewrite(trace, lambda t: t.take([1, 0, 2, 3]))


def missing_values(trace: Path) -> None:
    local = pa.array([1, None, 2, 3], pa.int32())
    rewrite(trace, lambda t: t.set_column(3, "local", local))


def a_missing_id(trace: Path) -> None:
    column = pa.array([[OWN, None], [], [], []], pa.list_(pa.int64()))
    rewrite(trace, lambda t: t.set_column(2, "remote_ids", column))


def seconds_that_are_none(trace: Path) -> None:
    column = pa.array([1.0, float("nan"), 2.0, 3.0], pa.float64())
    rewrite(trace, lambda t: t.set_column(7, "compute_s", column))


def a_count_below_nothing(trace: Path) -> None:
    rewrite(trace, lambda t: t.set_column(4, "seeds", pa.array([1, 2, -1, 3], pa.int32())))


def other_ids(*ids: list[int]) -> Callable[[Path], None]:
    def spoil(trace: Path) -> None:
        column = pa.array(ids, pa.list_(pa.int64()))
        rewrite(trace, lambda t: t.set_column(2, "remote_ids", column))

    return spoil


def flip_a_byte(trace: Path) -> None:
    path = trace / "rank=0" / "part-00001.parquet"
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    path.write_bytes(bytes(data))


ON_OPENING: list[tuple[Callable[[Path], None], str]] = [
    (truncate, r"rank=1/part-00001.parquet is missing, truncated or damaged"),
    (lose_a_part_in_the_middle, r"lacks part-00001.parquet.*in the middle"),
    (lose_the_last_part, r"rank=0 is truncated: its recorder wrote 10 minibatches, 8"),
    (lose_a_rank, r"rank=1 is missing: the recorder ended before it began rank 1"),
    (lose_the_manifest, r"is no trace: no manifest.json"),
    (spoil_the_manifest, r"manifest.json is damaged"),
    (another_schema, r"schema version 2, this Rudder reads 1"),
    (another_facts_schema, r"rank.json has schema version 2"),
    (another_parts_schema, r"part-00000.parquet has schema version 2"),
    (a_manifest_that_contradicts_itself, r"contradicts itself"),
    (a_manifest_of_something_else, r"no manifest of a trace"),
    (a_manifest_of_no_counts, r"no manifest of a trace: part_nodes must be counts, found '500'"),
    (a_manifest_below_nothing, r"part_nodes must be counts, found -1"),
    (a_manifest_with_a_halo_less, r"contradicts itself"),
    (facts_of_no_counts, r"does not describe a rank: rows must be counts, found '10'"),
    (facts_of_no_rank, r"rank.json does not say of which rank it is"),
    (a_part_of_no_rank, r"part-00000.parquet does not say of which rank it is"),
    (swap_the_parts, r"starts at minibatch 4 where 0 was due"),
    (a_part_of_another_trace, r"belongs to the trace 'far'"),
    (a_rank_of_another_trace, r"belongs to the trace 'far'"),
    (another_ranks_part, r"part-00000.parquet is of rank 1; files of two ranks"),
    (another_ranks_facts, r"rank=0/rank.json is of rank 1; files of two ranks"),
    (other_types, r"local: int64.*a trace has"),
    (a_column_less, r"has the columns"),
    (a_foreign_parquet_file, r"no part of a trace"),
]
ON_READING: list[tuple[Callable[[Path], None], str]] = [
    (rows_out_of_order, r"rows are out of order"),
    (missing_values, r"has missing values"),
    (a_missing_id, r"has missing values"),
    (seconds_that_are_none, r"compute_s must be finite and 0 or more"),
    (a_count_below_nothing, r"seeds must be finite and 0 or more"),
    (other_ids([OWN], [OWN, OWN], [], []), r"not ascending or repeat"),
    (other_ids([OWN, OWN + 2, OWN + 1], [], [], []), r"not ascending or repeat"),
    (other_ids([OWN], [], [OWN - 1], []), r"not a remote node of this rank"),
    (other_ids([OWN], [], [NODES], []), r"not a remote node of this rank"),
    (flip_a_byte, r"part-00001.parquet is missing, truncated or damaged"),
]


@pytest.mark.parametrize(("spoil", "says"), ON_OPENING)
def test_a_spoiled_trace_does_not_open(
    trace: Path, spoil: Callable[[Path], None], says: str
) -> None:
    Trace.open(trace)
    spoil(trace)
    with pytest.raises(TraceError, match=says):
        Trace.open(trace)


@pytest.mark.parametrize(("spoil", "says"), ON_READING)
def test_a_spoiled_row_is_not_read(trace: Path, spoil: Callable[[Path], None], says: str) -> None:
    list(Trace.open(trace).minibatches(0))
    spoil(trace)
    opened = Trace.open(trace)
    list(opened.minibatches(1))
    with pytest.raises(TraceError, match=says):
        list(opened.minibatches(0))


def contents(trace: Path) -> list[tuple[Any, ...]]:
    return [
        (r.epoch, r.step, r.remote_ids.tolist(), r.local, r.seeds, r.sample_s, r.stall_s)
        for r in Trace.open(trace).minibatches(0)
    ]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = {0: [row(k, range(OWN + k, OWN + k + 20)) for k in range(4)], 1: [row(0, [1])]}
    return record(tmp_path_factory.mktemp("small") / "t", rows)


@given(where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), cut=st.booleans())
@settings(max_examples=150)
def test_no_damage_goes_unnoticed(small: Path, where: float, flip: int, cut: bool) -> None:
    """One byte of a part is another, or the file is cut there."""
    path = small / "rank=0" / "part-00000.parquet"
    whole, good = path.read_bytes(), contents(small)
    at = int(where * len(whole))
    spoilt = whole[:at] if cut else whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :]
    path.write_bytes(spoilt)
    try:
        found = contents(small)
    except TraceError:
        return
    finally:
        path.write_bytes(whole)
    assert found == good  # a byte that says nothing about the rows


def test_falls_between_two_minibatches_are_no_damage(trace: Path) -> None:
    other_ids([OWN + 9], [OWN], [], [OWN])(trace)
    assert [r.remote_ids.tolist() for r in Trace.open(trace).minibatches(0)][:4] == [
        [OWN + 9], [OWN], [], [OWN],
    ]  # fmt: skip


def test_a_fill_that_does_not_fit_is_refused(trace: Path) -> None:
    opened = Trace.open(trace)
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), trace / "fill" / "halo-0.parquet")
    pq.write_table(pa.table({"deg": pa.array([1])}), trace / "fill" / "degree.parquet")
    with pytest.raises(TraceError, match="has 1 rows, the manifest says 100"):
        opened.halo(0)
    with pytest.raises(TraceError, match=r"degree.parquet has no column 'degree' of type int32"):
        opened.degree()


def test_nothing_recorded_is_told(tmp_path: Path) -> None:
    folder = record(tmp_path / "t", {0: [row(0, [OWN])], 1: [row(0, [1])]}, close=False)
    with pytest.raises(TraceError, match="no closed part of rank 0, 1"):
        Trace.open(folder)


def test_no_such_directory(tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match="nowhere"):
        Trace.open(tmp_path / "nowhere")


def test_another_graph_or_partition_is_refused(trace: Path) -> None:
    opened = Trace.open(trace)
    opened.check_matches("graph-a", "partition-a")
    with pytest.raises(TraceError, match="another graph"):
        opened.check_matches("graph-b", "partition-a")
    with pytest.raises(TraceError, match="another partition"):
        opened.check_matches("graph-a", "partition-b")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([row(1, [OWN])], "came where 0"),
        ([row(0, [OWN]), row(0, [OWN])], "came where 1"),
        ([row(0, [OWN], epoch=1), row(1, [OWN])], "epoch 0 came"),
        ([row(0, [OWN, OWN])], "ascending"),
        ([TraceRow(0, 0, np.array([1.5]), 1, 1)], "float64"),
        ([TraceRow(0, 0, np.array([OWN]), -1, 1)], "counts and seconds must be finite and 0"),
        ([row(0, [OWN], seconds=float("inf"))], "counts and seconds must be finite and 0"),
    ],
)
def test_a_writer_refuses_what_no_reader_would_take(
    tmp_path: Path, rows: list[TraceRow], says: str
) -> None:
    head = manifest()
    start_trace(tmp_path / "t", head, HALOS, DEGREE)
    recording = TraceWriter(tmp_path / "t", head, RankFacts(0, (2,), "s"))
    *good, bad = rows
    for each in good:
        recording.append(each)
    with pytest.raises(TraceError, match=says):
        recording.append(bad)


def test_nothing_is_recorded_over_something_else(trace: Path, tmp_path: Path) -> None:
    with pytest.raises(PathTakenError, match="not empty"):
        start_trace(trace, manifest(), HALOS, DEGREE)
    with pytest.raises(TraceError, match="cannot record into"):
        TraceWriter(trace, manifest(), RankFacts(0, (1,), "s"))
    (tmp_path / "file").write_text("")
    with pytest.raises(PathTakenError, match="not empty"):
        start_trace(tmp_path / "file", manifest(), HALOS, DEGREE)


def test_more_parts_than_their_names_have_digits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reader, writer):
        monkeypatch.setattr(module, "part_file", "part-{}.parquet".format)
    monkeypatch.setattr(writer, "MAX_ROWS", 1)
    rows = {0: [row(k, [OWN + k]) for k in range(12)], 1: [row(0, [1])]}
    trace = Trace.open(record(tmp_path / "t", rows))
    assert [r.remote_ids.tolist() for r in trace.minibatches(0)] == [[OWN + k] for k in range(12)]


@contextmanager
def full_disk() -> Iterator[None]:
    """Every file ends at 10 bytes: as where the disk is full, without filling one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_told_and_leaves_nothing_half(tmp_path: Path) -> None:
    head, facts = manifest(), RankFacts(0, (2,), "s")
    with (
        full_disk(),
        pytest.raises(TraceError, match=r"cannot write .*halo-0\.parquet: .*File too"),
    ):
        start_trace(tmp_path / "a", head, HALOS, DEGREE)
    start_trace(tmp_path / "t", head, HALOS, DEGREE)
    with full_disk(), pytest.raises(TraceError, match=r"cannot write .*rank\.json: File too"):
        TraceWriter(tmp_path / "t", head, facts)
    (tmp_path / "t" / "rank=0").rmdir()
    recording = TraceWriter(tmp_path / "t", head, facts)
    recording.append(row(0, [OWN]))
    with full_disk(), pytest.raises(TraceError, match=r"cannot write .*part-00000\.parquet"):
        recording.close()
    assert not list(tmp_path.rglob("*.part"))


def test_a_closed_writer_takes_nothing(trace: Path, tmp_path: Path) -> None:
    start_trace(tmp_path / "t", manifest(), HALOS, DEGREE)
    recording = TraceWriter(tmp_path / "t", manifest(), RankFacts(0, (1,), "s"))
    recording.close()
    recording.close()
    with pytest.raises(TraceError, match="is closed"):
        recording.append(row(0, [OWN]))


def test_reading_holds_one_part_at_a_time(tmp_path: Path) -> None:
    """200 minibatches of 20,000 ids are 32 MB; parts are closed at 2 MB."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "MAX_BYTES", 2_000_000)
        head = Manifest(
            "m", "sampler", Scenario.make(parts=2), "g", "p", 10**6, 1, 4, (10, 10**6 - 10), (0, 0)
        )
        empty = np.empty(0, np.int64)
        start_trace(tmp_path / "t", head, (empty, empty), np.zeros(10**6, np.int32))
        ids = np.arange(100, 20_100)
        for rank, rows in ((0, 200), (1, 1)):
            with TraceWriter(tmp_path / "t", head, RankFacts(rank, (rows,), "s")) as recording:
                for k in range(rows):
                    recording.append(TraceRow(0, k, ids if rank == 0 else ids[:0], 0, 1))
    trace = Trace.open(tmp_path / "t")
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), 0
    for _ in trace.minibatches(0):
        most = max(most, pool.bytes_allocated() - before)
    assert 0 < most < 8_000_000
