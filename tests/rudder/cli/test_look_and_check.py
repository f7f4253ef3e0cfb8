"""``rudder controllers``, ``policies``, ``suites`` and ``check``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rudder.scenario import Scenario
from rudder.suite import Suite

SUITE = """
[base]
graph = "sbm:nodes=900"

[scenarios.held]
split = "id_val"
seed_order = "communities"

[scenarios.wide]
split = "ood_fan_out"
each = { fan_out = [[15, 30]], buffer = [0.05, 500] }
"""
PLUGIN = """
from rudder import Controller, Decision
from rudder.registries import CONTROLLERS


class Wrong(Controller):
    def _decide(self, observation):
        return Decision(replace=True, share=7.0)


CONTROLLERS.register("wrong", Wrong, summary="share out of range")
"""
ASKING = """
from rudder import Controller
from rudder.registries import CONTROLLERS


class Asking(Controller):
    def _preview(self, task, observations):
        return {"sent": f"[bold] after {observations[-1].minibatch} of {len(observations)}"}


CONTROLLERS.register("test-asking", Asking, summary="shows what it was shown")
"""

Cli = Callable[..., Any]


def test_lists(cli: Cli) -> None:
    found = json.loads(cli("controllers", "--json").out)
    by_name = {item["name"]: item for item in found}
    assert {"none", "static", "always", "fixed", "massivegnn", "threshold", "random"} <= set(
        by_name
    )
    assert by_name["fixed"]["params"] == {"interval": 16}
    assert by_name["none"]["fixes"] == {"buffer": 0}
    policies = json.loads(cli("policies", "--json").out)
    assert {"score", "score-published", "massivegnn", "degree"} <= {p["name"] for p in policies}
    table = cli("controllers")
    assert table.code == 0
    assert "threshold" in table.out


def test_one(cli: Cli) -> None:
    found = json.loads(cli("controllers", "massivegnn:interval=8", "--json").out)
    assert found["params"] == {"interval": 8}
    assert found["fixes"] == {"policy": "massivegnn:interval=8"}
    assert found["tags"]["stochastic"] is False
    assert json.loads(cli("policies", "massivegnn", "--json").out)["params"]["alpha"] == 0.05
    for command in ("controllers", "policies"):
        unknown = cli(command, "nonsense")
        assert unknown.code == 2
        assert "nonsense" in unknown.err


def test_the_prompt_of_one(cli: Cli, tmp_path: Path) -> None:
    plugin = tmp_path / "asking.py"
    plugin.write_text(ASKING)
    shown = cli("controllers", "test-asking", "--prompt", "--plugin", plugin)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == "--- sent ---\n[bold] after 16 of 16\n\n"
    found = cli("controllers", "test-asking", "--prompt", "--plugin", plugin, "--json")
    assert json.loads(found.out) == {"sent": "[bold] after 16 of 16"}
    refused = cli("controllers", "always", "--prompt")
    assert (refused.code, refused.out) == (2, "")
    assert "controller 'always' asks no model" in refused.err
    assert cli("controllers", "--prompt").code == 2


def test_suites(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SUITE)
    suite = Suite.read(tmp_path / "small.toml")
    listed = cli("suites", "--json")
    assert listed.code == 0, listed.err
    assert "train" in {row["name"] for row in json.loads(listed.out)}
    shown = json.loads(cli("suites", "small.toml", "--json").out)
    assert shown["digest"] == suite.digest()
    assert shown["splits"] == {"id_val": 1, "ood_fan_out": 2}
    assert shown["base"] == {"graph": "sbm:nodes=900"}
    assert [row["name"] for row in shown["scenarios"]] == suite.names
    assert shown["scenarios"][0]["changes"] == {"seed_order": "communities"}
    assert Scenario.make(**shown["scenarios"][0]["scenario"]) == suite.scenarios[0].scenario
    table = cli("suites", tmp_path / "small.toml").out
    assert "wide/fan_out=[15,30],buffer=500" in table
    assert "seed_order=communities" in table
    unknown = cli("suites", "nonsense")
    assert (unknown.code, unknown.out) == (2, "")
    assert "nonsense" in unknown.err


def test_check(cli: Cli, tmp_path: Path) -> None:
    passed = cli("check", "fixed:interval=3", "--json")
    assert passed.code == 0
    records = json.loads(passed.out)
    assert {r["status"] for r in records} == {"passed", "skipped"}
    assert all(r["name"] == r["check"] for r in records)

    plugin = tmp_path / "wrong.py"
    plugin.write_text(PLUGIN)
    failed = cli("check", "wrong", "--plugin", plugin)
    assert failed.code == 1
    assert "share must lie in 0..1" in failed.out
    assert "decisions_are_valid" in failed.err

    refused = cli("check", "fixed:interval=0")
    assert refused.code == 2
    assert "interval must be a whole number from 1" in refused.err
    assert refused.out == ""


def test_check_finds_models_of_the_data_directory(
    cli: Cli, tmp_path: Path, repository: Path
) -> None:
    shipped = repository / "training_ml" / "models" / "logistic"
    shutil.copytree(shipped, tmp_path / "elsewhere" / "models" / "mine")
    home = tmp_path / "elsewhere"
    assert cli("check", "logistic:model=mine", "--home", home).code == 0
    missing = cli("check", "logistic:model=mine")
    assert missing.code == 2
    assert "no model" in missing.err
