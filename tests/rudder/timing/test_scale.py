"""Scale on paper: what is extrapolated, what the check says, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rudder.cli.app import main
from rudder.errors import UsageError
from rudder.timing import Machine
from rudder.timing.scale import ASSUMPTIONS, Shape, Target, estimate, extrapolate, seconds_at

MakeTrace = Callable[..., Path]
TARGET = Target(
    hosts=16, trainers=1, rate=8.0, latency_s=0.0, train_nodes=16_000, batch_size=100,
    row_bytes=92.0, depth=0,
)  # fmt: skip


def random_parts(parts: int) -> Shape:
    """What random parts give: a local share of 1/parts; every remote node fetched."""
    return Shape(
        parts, 10, 1000.0, 1 / parts, 1.0, 0.5 * np.log2(parts), 1.0 + 0.1 * np.log2(parts)
    )


def test_random_parts_go_on_exactly() -> None:
    found = extrapolate([random_parts(p) for p in (2, 4, 8)], 1024)
    assert found.local_share == pytest.approx(1 / 1024)
    assert found.nodes == pytest.approx(1000)
    assert found.fetched_share == pytest.approx(1)
    assert found.halo_share == pytest.approx(5)
    assert found.balance == pytest.approx(2)


def test_hit_rates_fall_as_a_power() -> None:
    """Hits of 0.8 and 0.4 at 2 and 4 parts: 0.2 at 8."""
    shapes = [replace(random_parts(p), fetched_share=1 - 1.6 / p) for p in (2, 4)]
    assert extrapolate(shapes, 8).fetched_share == pytest.approx(0.8)


def test_one_number_of_parts_is_not_enough() -> None:
    with pytest.raises(UsageError, match="two or more different numbers of parts"):
        extrapolate([random_parts(4), random_parts(4)], 8)


def test_seconds_by_hand() -> None:
    """Own cores: 2 ms + 1 us x 1000; 1 ms + 1e-8 x 92000; 3 ms + 2e-8 x 92000. 750 remote rows of
    100 bytes x 1.2 at 1 byte per microsecond x 0.9; sampling 3 x 30 x 750 us; 10 minibatches."""
    machine = Machine(
        1, 2e-3, 1e-6, 1e-3, 1e-8, 3e-3, 2e-8, efficiency=0.9, sampling_wait_slowest=3.0,
        sampling_row_bytes=30.0, burst_bytes=1e9, latency_s=1.0,
    )  # fmt: skip
    found = seconds_at(machine, random_parts(4), TARGET)
    assert found["minibatches"] == 10
    assert found["sample_s"] == pytest.approx(3e-3 + 67.5e-3)
    assert found["fetch_s"] == pytest.approx(1.92e-3 + 0.09 / 0.9)
    assert found["compute_s"] == pytest.approx(4.84e-3)
    total = found["sample_s"] + found["fetch_s"] + found["compute_s"]
    assert found["minibatch_seconds"] == pytest.approx(total)
    assert found["epoch_seconds"] == pytest.approx(10 * total)


def test_trainers_of_a_host_share_its_link() -> None:
    """Two on each of two hosts: twice the bytes of sampling and rows on a link; 3/4 of twice the
    model's bytes in gradients, at 1 byte per microsecond x 0.9."""
    machine = Machine(
        1, 2e-3, 1e-6, 1e-3, 1e-8, 3e-3, 2e-8, efficiency=0.9, sampling_wait_slowest=3.0,
        sampling_row_bytes=30.0, model_bytes=30_000,
    )  # fmt: skip
    found = seconds_at(machine, random_parts(4), replace(TARGET, hosts=2, trainers=2))
    assert found["sample_s"] == pytest.approx(3e-3 + 2 * 67.5e-3)
    assert found["fetch_s"] == pytest.approx(1.92e-3 + 2 * 0.09 / 0.9)
    assert found["compute_s"] == pytest.approx(4.84e-3 + 0.045 / 0.9)


def test_an_epoch_ends_with_a_minibatch_that_is_not_full() -> None:
    assert replace(TARGET, train_nodes=16_001).minibatches == 11


def test_shares_and_balance_stay_in_range() -> None:
    two = replace(random_parts(2), local_share=0.5, balance=1.5, fetched_share=0.9)
    four = replace(random_parts(4), local_share=0.9, balance=1.1, fetched_share=0.1)
    shapes = [two, four]
    found = extrapolate(shapes, 8)
    assert (found.local_share, found.balance, found.fetched_share) == (1.0, 1.0, 0.0)


def test_a_check_of_shapes_that_follow_the_rule_finds_no_error(machine: Machine) -> None:
    found = estimate(machine, [random_parts(p) for p in (8, 2, 4)], TARGET)
    assert found["estimate"] is True
    assert found["check"]["parts"] == 8
    assert found["check"]["from_parts"] == [2, 4]
    assert found["check"]["error"] == pytest.approx(
        dict.fromkeys(found["check"]["error"], 0.0), abs=1e-8
    )
    assert found["assumptions"] == list(ASSUMPTIONS)


def test_a_check_of_others_finds_their_error(machine: Machine) -> None:
    shapes = [random_parts(p) for p in (2, 4)]
    shapes.append(replace(random_parts(8), local_share=0.25))
    check = estimate(machine, shapes, TARGET)["check"]
    assert check["error"]["local_share"] == pytest.approx(0.125 / 0.25 - 1)
    assert check["error"]["minibatch_seconds"] > 0.01
    assert estimate(machine, shapes[:2], TARGET)["check"] is None


def test_a_check_predicts_from_fewer_parts_only(machine: Machine) -> None:
    """Two traces at 8 parts: neither is predicted from the other."""
    shapes = [random_parts(p) for p in (2, 8, 4, 8)]
    check = estimate(machine, shapes, TARGET)["check"]
    assert (check["parts"], check["from_parts"]) == (8, [2, 4])
    assert estimate(machine, shapes[:2] + shapes[3:], TARGET)["check"] is None


def test_the_command_says_that_it_estimates(
    machine: Machine, make_trace: MakeTrace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = [str(make_trace(tmp_path / f"{parts}.trace", parts)) for parts in (2, 4, 8)]
    machine.save(tmp_path / "c.json")
    command = ["estimate", *traces, "--time", str(tmp_path / "c.json"), "--rate", "1000"]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "ESTIMATE for 448 hosts x 4 trainers" in told
    assert "an ESTIMATE: no run of this size was made" in told
    assert "error at 8 parts, predicted from [2, 4]" in told
    assert main([*command, "--json", "--hosts", "16"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["target"]["ranks"] == 64
    # 4 minibatches of 2 seeds on each of 2 ranks; pulls run 2 minibatches ahead
    assert (found["target"]["train_nodes"], found["target"]["depth"]) == (16, 2)
    # of 5 local nodes and one of each other part
    assert [shape["local_share"] for shape in found["measured"]] == [5 / 6, 5 / 8, 5 / 12]
    assert found["assumptions"] == list(ASSUMPTIONS)


def test_several_trainers_per_part_are_refused(
    machine: Machine, make_trace: MakeTrace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = make_trace(tmp_path / "2.trace", 2, trainers=2)
    machine.save(tmp_path / "c.json")
    assert main(["estimate", str(trace), "--time", str(tmp_path / "c.json")]) == 2
    assert "2 trainers per part" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"graph": "other"}, "another graph (other)"),
        ({"batch_size": 3}, "another batch size (3)"),
        ({"fan_out": (2, 2)}, "another fan-out"),
        ({"partition_method": "random"}, "another partitioner"),
        ({"parts": 2}, "two or more different numbers of parts"),
    ],
)
def test_traces_that_differ_in_more_than_parts_are_refused(
    fields: dict[str, Any],
    message: str,
    machine: Machine,
    make_trace: MakeTrace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    traces = [make_trace(tmp_path / "a.trace", 2),
              make_trace(tmp_path / "b.trace", **{"parts": 4, **fields})]  # fmt: skip
    machine.save(tmp_path / "c.json")
    assert main(["estimate", *map(str, traces), "--time", str(tmp_path / "c.json")]) == 2
    assert message in capsys.readouterr().err


def test_a_replay_takes_the_model(
    machine: Machine, make_trace: MakeTrace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 parts, nothing buffered; per minibatch 6 nodes, 1 row of 108 bytes at 1 byte per us."""
    trace = make_trace(tmp_path / "2.trace", 2)
    own = replace(machine, cores=0, model_bytes=0, sampling_row_bytes=0)
    own.save(tmp_path / "c.json")
    command = [
        "replay", str(trace), "-c", "none", "--prefetch-depth", "0", "--rate", "8", "--time",
        str(tmp_path / "c.json"), "--json", "--buffer", "0",
    ]  # fmt: skip
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    ahead = (2e-3 + 6e-6) + (1e-3 + 6e-6 + 108e-6 / 0.9)
    assert told["stall_seconds"] == pytest.approx(2 * 4 * ahead)
