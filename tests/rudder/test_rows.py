"""The rows of the per-minibatch table."""

from __future__ import annotations

import dataclasses

from rudder.result import MINIBATCH_SCHEMA, MinibatchRow, minibatch_table


def test_rows_and_schema_hold_the_same_columns() -> None:
    assert [f.name for f in dataclasses.fields(MinibatchRow)] == MINIBATCH_SCHEMA.names


def test_a_table_of_rows() -> None:
    rows = [MinibatchRow(1, 0, k, 10, 5, 7, 4, 3, 2, 3, 0.5, 1.0, loss=0.25) for k in range(3)]
    table = minibatch_table(rows)
    assert table.schema == MINIBATCH_SCHEMA
    assert table.to_pylist() == [dataclasses.asdict(row) for row in rows]
    assert minibatch_table([]).schema == MINIBATCH_SCHEMA
