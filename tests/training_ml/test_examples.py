"""The table of examples: written whole, read with suspicion, handed out by part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rudder_training_ml.checks import check
from rudder_training_ml.examples import SCHEMA, ExampleTable, examples_path

from rudder.errors import CollectionError, MissingPathError, TrainingDataError, UnknownNameError
from rudder.observation import feature_names
from rudder.spec import Spec

RULE = Spec.parse("counterfactual:horizon=32,tie=0.002")
DIGEST = "ab" * 32
PER_PART = 40
PARTS = ("train", "validation", "test")


@pytest.fixture
def table() -> pa.Table:
    """Forty questions in each part; every fifth was dropped."""
    rng = np.random.default_rng(7)
    count = PER_PART * len(PARTS)
    kept = np.arange(count) % 5 != 4
    part = np.repeat(PARTS, PER_PART)
    gain = rng.normal(size=count)
    columns: dict[str, Any] = {
        "run": [f"run-{p}" for p in part],
        "group": [f"trace-{p}" for p in part],
        "scenario": ["drifting"] * count,
        "schedule": ["always"] * count,
        "policy": ["score"] * count,
        "seed": [1] * count,
        "rank": [0] * count,
        "question": range(count),
        "minibatch": range(1, count + 1),
        "replace": [True] * count,
        "part": part,
        **{name: rng.normal(size=count) for name in feature_names()},
        "label": pa.array((gain > 0).astype(np.int8), mask=~kept),
        "weight": np.where(kept, np.abs(gain), 0.0),
        "gain": gain,
        "dropped": np.where(kept, "", "tie"),
    }
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return examples_path(tmp_path, RULE.name)


@pytest.fixture
def examples(table: pa.Table, path: Path) -> ExampleTable:
    """Written to ``path``."""
    made = ExampleTable(table, RULE, DIGEST)
    made.save(path)
    return made


def put(table: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with another column."""
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(name), pa.array(values, SCHEMA.field(name).type))


def test_what_was_written_is_read(examples: ExampleTable, path: Path) -> None:
    found = ExampleTable.read(path, DIGEST)
    assert found.table.equals(examples.table)
    assert (found.rule, found.collection) == (RULE, DIGEST)
    assert [p.name for p in path.parent.iterdir()] == ["examples-counterfactual.parquet"]


def test_columns_are_found_by_name(examples: ExampleTable, path: Path) -> None:
    stored = pq.read_table(path)
    turned = stored.select(stored.column_names[::-1])
    pq.write_table(turned, path)
    assert ExampleTable.read(path, DIGEST).table.equals(examples.table)


def test_a_part_is_what_estimators_take(examples: ExampleTable, table: pa.Table) -> None:
    parts = examples.parts()
    assert list(parts) == list(PARTS)
    kept = np.arange(PER_PART) % 5 != 4
    for number, (name, part) in enumerate(parts.items()):
        rows = table.slice(number * PER_PART, PER_PART)
        assert part.names == feature_names()
        for at, feature in enumerate(feature_names()):
            assert part.rows[:, at].tolist() == rows.column(feature).to_numpy()[kept].tolist()
        gains = rows.column("gain").to_numpy()[kept]
        assert examples.gains(name).tolist() == gains.tolist()
        assert part.labels.dtype == np.int8
        assert part.labels.tolist() == (gains > 0).astype(int).tolist()
        assert part.weights == pytest.approx(np.abs(gains) / np.abs(gains).mean())
        assert part.groups.tolist() == [f"trace-{name}"] * kept.sum()
    check(parts)  # nothing to complain of
    assert examples.counts() == {
        "train": 32, "validation": 32, "test": 32, "dropped: tie": 24
    }  # fmt: skip


def test_columns_come_as_asked(examples: ExampleTable) -> None:
    chosen = ("stale_share", "hit_rate")
    part = examples.part("test", chosen)
    assert part.names == chosen
    whole = examples.part("test")
    for at, name in enumerate(chosen):
        assert part.rows[:, at].tolist() == whole.rows[:, whole.names.index(name)].tolist()
    with pytest.raises(UnknownNameError, match=r"no feature is named graph, label; there are hit_"):
        examples.part("test", ["graph", "hit_rate", "label"])
    with pytest.raises(UnknownNameError, match="no part is named 'exam'"):
        examples.part("exam")


def test_an_empty_part_is_handed_out_empty(table: pa.Table) -> None:
    few = ExampleTable(table.slice(0, PER_PART), RULE, DIGEST)
    part = few.part("test")
    assert part.rows.shape == (0, len(feature_names()))
    assert len(part) == len(part.weights) == len(few.gains("test")) == 0


def test_a_group_in_two_parts_is_neither_written_nor_read(table: pa.Table, path: Path) -> None:
    groups = table.column("group").to_pylist()
    groups[-2] = "trace-train"  # the last one was dropped, and would harm nobody
    leaking = ExampleTable(put(table, "group", groups), RULE, DIGEST)
    with pytest.raises(
        TrainingDataError, match=r"leak: .* 1 access traces .* trace-train in test and train"
    ):
        leaking.save(path)
    assert not path.exists()
    ExampleTable(table, RULE, DIGEST).save(path)
    stored = pq.read_table(path)
    pq.write_table(leaking.table.replace_schema_metadata(stored.schema.metadata), path)
    with pytest.raises(TrainingDataError, match="leak"):
        ExampleTable.read(path, DIGEST)
    groups[-2], groups[-1] = "trace-test", "trace-train"
    ExampleTable(put(table, "group", groups), RULE, DIGEST).save(path)


Spoil = Callable[[pa.Table], pa.Table]


def relabelled(facts: dict[bytes, bytes]) -> Spoil:
    return lambda table: table.replace_schema_metadata({**table.schema.metadata, **facts})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (relabelled({b"rudder.observation": b"99"}), "rudder.observation '99', wanted is"),
        (relabelled({b"rudder.examples": b"0"}), "rudder.examples '0'"),
        (relabelled({b"rudder.rule": b"{"}), "names no label rule"),
        (lambda table: table.replace_schema_metadata({}), "rudder.examples 'nowhere'"),
        (lambda table: table.drop_columns(["hit_rate"]), "hit_rate: missing instead of double"),
        (lambda table: table.append_column("graph", table["run"]), "graph is not one of them"),
        (
            lambda table: table.append_column("run", table["run"]),
            "cannot be read: Multiple matches",
        ),
        (
            lambda table: table.set_column(5, "seed", table["seed"].cast(pa.int32())),
            "seed: int32 instead of int64",
        ),
        (lambda table: put(table, "label", [2] * len(table)), r"labels \[2\]"),
        (lambda table: put(table, "part", ["fit"] * len(table)), r"parts \['fit'\]"),
        (lambda table: put(table, "dropped", ["tie"] * len(table)), "without reason"),
        (lambda table: put(table, "weight", [0.0] * len(table)), "weights that are not positive"),
    ],
)
def test_an_edited_or_foreign_table_is_refused(
    examples: ExampleTable, path: Path, spoil: Spoil, message: str
) -> None:
    pq.write_table(spoil(pq.read_table(path)), path)
    with pytest.raises(CollectionError, match=message):
        ExampleTable.read(path, DIGEST)


def test_a_collection_that_changed_is_told(examples: ExampleTable, path: Path) -> None:
    with pytest.raises(CollectionError, match="a collection that changed; label again"):
        ExampleTable.read(path, "cd" * 32)


def test_a_missing_or_damaged_file_is_told(examples: ExampleTable, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(CollectionError, match=r"cannot be read: .*; label again"):
        ExampleTable.read(path)
    path.unlink()
    with pytest.raises(MissingPathError, match="make them with 'rudder label"):
        ExampleTable.read(path)
