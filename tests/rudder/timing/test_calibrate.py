"""A calibration finds again what a run was made with, and says what it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rudder.cli.app import main
from rudder.errors import CalibrationError, MissingPathError
from rudder.partition import Partition
from rudder.result import RunResult
from rudder.timing import Machine, Traffic, calibrate, predict

MakeRun = Callable[..., RunResult]


@pytest.fixture
def fitted(make_run: MakeRun, machine: Machine, traffic: Traffic) -> Machine:
    return calibrate(make_run(), traffic, cores=machine.cores, burst_bytes=0)


def test_it_finds_what_the_run_was_made_with(fitted: Machine, machine: Machine) -> None:
    """Sampling and serving exactly; training holds what ranks wait for each other, a little."""
    for name in ("sample_fixed_s", "sample_node_s", "serve_fixed_s", "serve_byte_s"):
        assert getattr(fitted, name) == pytest.approx(getattr(machine, name), rel=1e-6), name
    assert fitted.train_byte_s == pytest.approx(machine.train_byte_s, rel=0.25)
    assert fitted.train_fixed_s == pytest.approx(machine.train_fixed_s, rel=0.25)
    assert fitted.sampling_wait == pytest.approx(machine.sampling_wait, rel=1e-6)
    assert fitted.efficiency == pytest.approx(machine.efficiency, rel=1e-6)
    assert fitted.sampling_row_bytes == pytest.approx(30)
    assert fitted.model_bytes == pytest.approx(machine.model_bytes)


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("rate", [0, 20, 100])
def test_it_predicts_other_runs(
    fitted: Machine, make_run: MakeRun, traffic: Traffic, depth: int, rate: float
) -> None:
    run = make_run((rate,) * 3, (8,) * 3, prefetch_depth=depth)
    measured = [epoch["seconds"] for epoch in run.details["epochs"][0]]
    assert predict(fitted, run, traffic).epochs == pytest.approx(measured, rel=0.1)


def test_the_machine_itself_predicts_exactly(
    machine: Machine, make_run: MakeRun, traffic: Traffic
) -> None:
    run = make_run((20, 20, 50), (8, 2, 8), prefetch_depth=2)
    found = predict(machine, run, traffic)
    measured = [epoch["seconds"] for epoch in run.details["epochs"][0]]
    assert found.epochs == pytest.approx(measured)
    assert found.epoch_seconds == pytest.approx(np.mean(measured[1:]))
    stalls = run.minibatches.column("stall_s").to_numpy().sum()
    assert found.stall_s == pytest.approx(stalls)


def test_alike_minibatches_leave_the_fixed_seconds_assumed(
    make_run: MakeRun, machine: Machine, traffic: Traffic
) -> None:
    found = calibrate(make_run(batch=(8,) * 5), traffic, cores=1)
    assert found.sample_fixed_s == found.train_fixed_s == 0
    assert "sample_fixed_s" in found.source["assumed"]
    # 1600 nodes on average, give or take what they vary
    assert found.sample_node_s == pytest.approx(machine.sample_node_s + 2e-3 / 1600, rel=0.01)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prefetch_depth": 2}, "depth 0"),
        ({"buffer": 0.25}, "had a buffer"),
        ({"rates": (50,) * 5}, "0 unshaped and 4 shaped"),
        ({"rates": (0,) * 5}, "4 unshaped and 0 shaped"),
    ],
)
def test_runs_that_cannot_calibrate(
    make_run: MakeRun, traffic: Traffic, fields: dict[str, object], message: str
) -> None:
    with pytest.raises(CalibrationError, match=message):
        calibrate(make_run(**fields), traffic)


def test_a_replayed_run_calibrates_nothing(make_run: MakeRun, traffic: Traffic) -> None:
    run = make_run()
    replayed = replace(run, summary={**run.summary, "modelled": ["epoch_seconds"]})
    with pytest.raises(CalibrationError, match="was replayed"):
        calibrate(replayed, traffic)


def test_traffic_of_another_partition(make_run: MakeRun, machine: Machine) -> None:
    other = Traffic(np.ones((3, 3)))
    with pytest.raises(CalibrationError, match="2 ranks, the trace 3"):
        calibrate(make_run(), other)
    with pytest.raises(CalibrationError, match="2 ranks, the trace 3"):
        predict(machine, make_run(), other)


def test_it_is_a_plain_file(fitted: Machine, tmp_path: Path) -> None:
    fitted.save(tmp_path / "c.json")
    assert Machine.load(tmp_path / "c.json") == fitted
    values = json.loads((tmp_path / "c.json").read_text())
    assert values["schema_version"] == 1
    assert values["source"]["run_id"] == "made"
    assert (
        values["parameters"]["efficiency"]["unit"] == "share of the link's rate that payload gets"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "schema version 2"),
        ({"parameters": {}}, "no calibration"),
        ({"source": None, "parameters": 3}, "no calibration"),
        ({"source": None}, "no calibration"),
    ],
)
def test_damaged_files_are_refused(
    fitted: Machine, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "c.json"
    fitted.save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CalibrationError, match=message):
        Machine.load(path)


def test_a_place_that_cannot_be_written_is_told(fitted: Machine, tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=r"cannot be written to .*nowhere/c\.json: No such"):
        fitted.save(tmp_path / "nowhere" / "c.json")


def test_missing_and_impossible_calibrations(fitted: Machine, tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match="no calibration at"):
        Machine.load(tmp_path / "none.json")
    for change in ({"efficiency": 1.5}, {"train_fixed_s": -1.0}, {"cores": float("nan")},
                   {"latency_s": float("inf")}):  # fmt: skip
        with pytest.raises(CalibrationError, match="out of range"):
            replace(fitted, **change)


@pytest.fixture
def command(make_run: MakeRun, make_trace: Callable[..., Path], tmp_path: Path) -> list[str]:
    """A run and a trace over the same partition."""
    partition = Partition(
        tmp_path / "partition", "tiny", "tiny", "graph", "partition", "metis", 0, 20, 80, 2, False,
        25, (10, 10), (40, 40), (1, 1), (5, 5), 0.5, 1.0, 0.0,
    )  # fmt: skip
    partition.folder.mkdir()
    partition.save()
    run = make_run()
    run = replace(run, details={**run.details, "partition": str(partition.folder)})
    run.save(tmp_path / "run")
    trace = make_trace(tmp_path / "2.trace", 2)
    return ["calibrate-time", str(tmp_path / "run"), "--trace", str(trace), "--cores", "1",
            "--burst", "0"]  # fmt: skip


def test_the_command_fits_and_keeps(command: list[str], fitted: Machine, tmp_path: Path) -> None:
    assert main([*command, "--out", str(tmp_path / "c.json")]) == 0
    assert Machine.load(tmp_path / "c.json") == fitted


def test_the_command_refuses_what_does_not_belong_together(
    command: list[str],
    make_trace: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = ["--out", str(tmp_path / "c.json")]
    other = make_trace(tmp_path / "other.trace", 2, graph="other")
    assert main([*command, *out, "--trace", str(other)]) == 1
    assert "was recorded on another graph (digest other)" in capsys.readouterr().err
    missing = str(tmp_path / "nowhere")
    assert main(["calibrate-time", missing, *command[2:], *out]) == 2
    assert f"no run at {missing}" in capsys.readouterr().err
    assert main([*command, "--out", f"{missing}/c.json"]) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert not (tmp_path / "c.json").exists()
    # what the trace was recorded on is not known any more
    (tmp_path / "partition" / "rudder.json").unlink()
    assert main([*command, *out, "--trace", str(other)]) == 0
