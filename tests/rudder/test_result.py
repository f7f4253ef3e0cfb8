"""Results: what is saved is what is loaded, and a damaged run is one clear error."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rudder.errors import ResultError
from rudder.result import MINIBATCH_SCHEMA, SUMMARY_KEYS, MinibatchRow, RunResult, minibatch_table
from rudder.scenario import Scenario
from rudder.spec import Spec

ROW = MinibatchRow(
    rank=0, epoch=0, step=0, seeds=8, local=5, remote_sampled=10, hits=4, misses=6, replaced=1,
    fetched=7, stale_share=0.5, occupancy=1.0, loss=0.5,
)  # fmt: skip


@pytest.fixture
def result() -> RunResult:
    return RunResult(
        scenario=Scenario.make(graph="rmat:nodes=100", rate=100.0, buffer=1.0),
        controller=Spec("fixed", {"interval": 16}),
        minibatches=minibatch_table([ROW]),
        decisions=[{"minibatch": 3, "replace": True}],
        summary={**dict.fromkeys(SUMMARY_KEYS), "hits": 4, "hit_rate": 0.4},
        details={"epochs": [1.5]},
    )


def test_a_saved_run_loads_as_it_was(result: RunResult, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    back = RunResult.load(tmp_path / "run")
    assert back.scenario == result.scenario
    assert type(back.scenario.buffer) is float
    assert back.controller == result.controller
    assert back.minibatches == result.minibatches
    assert back.decisions == result.decisions
    assert back.summary == result.summary
    assert back.details == result.details
    assert back.run_dir == tmp_path / "run"
    assert not list((tmp_path / "run").glob("*.part"))


def test_numpy_numbers_and_nan_do_not_lose_a_run(result: RunResult, tmp_path: Path) -> None:
    strange = RunResult(
        result.scenario,
        result.controller,
        result.minibatches,
        [{"p": np.float32(0.5)}],
        {"hits": np.int64(4), "hit_rate": float("nan"), "epoch_seconds": np.float64("inf")},
        {"counters": np.array([1, 2]), "where": tmp_path},
    )
    strange.save(tmp_path)
    text = (tmp_path / "run.json").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    back = RunResult.load(tmp_path)
    assert back.summary == {"hits": 4, "hit_rate": None, "epoch_seconds": None}
    assert back.details == {"counters": [1, 2], "where": str(tmp_path)}
    assert back.decisions == [{"p": 0.5}]


def test_rows_have_the_columns_of_the_table() -> None:
    table = minibatch_table([ROW, ROW])
    assert table.schema == MINIBATCH_SCHEMA
    assert table["fetched"].to_pylist() == [7, 7]
    assert minibatch_table([]).num_rows == 0


@pytest.mark.parametrize("name", ["run.json", "minibatches.parquet", "decisions.jsonl"])
def test_a_missing_or_cut_file_is_one_error(result: RunResult, tmp_path: Path, name: str) -> None:
    result.save(tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ResultError, match=str(tmp_path)):
        RunResult.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ResultError, match=str(tmp_path)):
        RunResult.load(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema_version", 99),
        ("scenario", {"no_such_field": 1}),
        ("scenario", None),
        ("controller", {"name": ""}),
    ],
)
def test_another_version_or_content_is_refused(
    result: RunResult, tmp_path: Path, key: str, value: object
) -> None:
    result.save(tmp_path)
    head = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**head, key: value}))
    with pytest.raises(ResultError, match=str(tmp_path)):
        RunResult.load(tmp_path)
