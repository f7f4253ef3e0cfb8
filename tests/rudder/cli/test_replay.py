"""``rudder replay`` from the command line, on the shipped trace."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rudder.home import Home
from rudder.result import SUMMARY_KEYS
from rudder.scenario import Scenario
from rudder.trace import find_trace

Cli = Callable[..., Any]


def test_the_shipped_trace_is_replayed_under_a_controller(cli: Cli) -> None:
    ran = cli(
        "replay", "debian-demo", "--controller", "fixed:interval=4", "--policy", "score",
        "--buffer", "0.25", "--rate", "100", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert set(SUMMARY_KEYS) <= set(told)
    assert told["controller"] == "fixed:interval=4"
    assert 1 < told["regret"] == told["fetched"] / told["min_fetched"]
    assert 0.3 < told["communication_vs_no_buffer"] < 1
    assert told["epoch_seconds"] > 0
    assert "epoch_seconds" in told["modelled"]
    assert told["regret_to_timing_oracle"] is None


def test_an_oracle_is_asked_for(cli: Cli) -> None:
    ran = cli(
        "replay", "debian-demo", "-c", "always", "--policy", "score-published", "--buffer", "0.05",
        "--oracle", "timing-oracle:horizon=4", "--no-decisions", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["regret_to_timing_oracle"] == told["fetched"] / told["timing_oracle_fetched"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no trace at"),
        (["debian-demo", "-c", "alway"], "did you mean 'always'"),
        (["debian-demo", "--policy", "scor"], "did you mean 'score'"),
        (["debian-demo", "--batch-size", "7"], "No such option"),
        (["debian-demo", "-c", "recorded"], "recorded:run=DIRECTORY"),
        (["debian-demo", "-c", "recorded:run=gone"], "there is no run at /"),
        (["debian-demo", "--time", "c.json"], "/c.json; 'rudder calibrate-time'"),
        (["debian-demo", "--oracle", "timing-orcale"], "did you mean 'timing-oracle'"),
        (["debian-demo", "--buffer", "1000000"], "at most"),
    ],
)
def test_wrong_use_is_told(cli: Cli, arguments: list[str], message: str) -> None:
    ran = cli("replay", *arguments)
    assert ran.code == 2
    assert message in ran.err


def test_a_run_without_a_buffer_is_replayed_with_one(cli: Cli, home: Home, tmp_path: Path) -> None:
    """As ``rudder trace`` records it under its default controller."""
    shutil.copytree(find_trace("debian-demo", home), tmp_path / "plain.trace")
    path = tmp_path / "plain.trace" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["scenario"]["buffer"] = 0
    path.write_text(json.dumps(manifest))
    ran = cli("replay", "plain", "-c", "static", "--no-decisions", "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["buffer"] == Scenario().buffer
    assert told["hits"] > 0
    assert "recorded without a buffer; replayed with --buffer 0.25" in ran.err
    nothing = cli("replay", "plain", "-c", "static", "--buffer", "0", "--no-decisions", "--json")
    told = json.loads(nothing.out)
    assert (told["buffer"], told["hits"], told["regret"]) == (0, 0, 1)


def test_training_refuses_a_controller_that_needs_a_trace(cli: Cli) -> None:
    ran = cli("train", "debian", "-c", "timing-oracle")
    assert ran.code == 2
    assert "rudder replay TRACE" in ran.err
