"""``rudder evaluate`` as a user calls it: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rudder_eval.board import Remaining, words
from rudder_eval.cells import Cell
from rudder_eval.commands_evaluate import never_valid, table
from rudder_eval.headroom import NOTHING, Bounds, headroom_table
from rudder_eval.sweep import Planned

from rudder.cli.app import main
from rudder.home import Home
from rudder.plugins import PluginFile
from rudder.scenario import Scenario
from rudder.spec import Spec, split_specs

from .conftest import BASE, SCENARIOS


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    lines = ["[base]", *(f"{k} = {json.dumps(v)}" for k, v in BASE.items())]
    for name, fields in SCENARIOS.items():
        lines += [f"[scenarios.{name}]", *(f"{k} = {json.dumps(v)}" for k, v in fields.items())]
    path.write_text("\n".join(lines))
    return path


def test_a_failure_is_shown_and_the_exit_code_is_1(
    suite: Path, home: Home, plugin: PluginFile, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "evaluate", str(suite), "-c", "static,no-start:batch_size=20", "--seeds", "2",
        "--seeds-of", "no-start=1", "--home", str(home.root), "--plugin",
        plugin.path, "--no-track",
    ]  # fmt: skip
    assert main(arguments) == 1
    printed = capfd.readouterr()
    assert printed.out.index("What timing can save") < printed.out.index("Means over")
    assert "what a controller prints" not in printed.out
    assert "what a controller prints" in printed.err
    assert "next: 'rudder report tiny'" in printed.err
    assert "failed: no-start:batch_size=20, batch, seed 1000: " in printed.err
    assert "no such batch size here" in printed.err
    assert main([*arguments, "--json"]) == 1
    told: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert (told["cells"], told["failed"], told["run_now"]) == (2 * 3 + 3, 1, 1)
    assert [row["name"] for row in told["headroom"]] == ["plain", "large", "batch"]
    assert told["failures"][0]["controller"] == "no-start:batch_size=20"
    assert main([*arguments[:3], "static", *arguments[4:6], *arguments[8:], "--json"]) == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (["-c", "statik"], "did you mean 'static'"),
        (["--scenarios", "plian"], "did you mean 'plain'"),
        (["--splits", "ood_bufer"], "did you mean 'ood_buffer'"),
        (["--seeds-of", "static"], "write CONTROLLER=NUMBER"),
        (["--seeds-of", "always=3"], "seeds are given for always"),
        (["-c", "fixed:interval=3", "--seeds-of", "fixed:interval=4=3"], "given for fixed:inter"),
    ],
)
def test_typos(
    suite: Path, home: Home, change: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(suite), "-c", "static", *change, "--home", str(home.root)]) == 2
    assert told in capsys.readouterr().err
    assert main(["evaluate", "trian", "-c", "static", "--home", str(home.root)]) == 2
    assert "did you mean 'train'" in capsys.readouterr().err


def test_controllers_are_split_at_commas_that_end_a_spec() -> None:
    assert split_specs("a,b:x=1,y=[1,2],c,d:z=2") == ["a", "b:x=1,y=[1,2]", "c", "d:z=2"]


def test_headroom_is_the_best_constant_schedule_beside_the_oracle() -> None:
    bounds = Bounds.of({"never": 120, "always": 110, "every 2": 110}, 100)
    assert (bounds.best, bounds.best_constant) == ("always", 110)
    assert bounds.headroom == pytest.approx(0.10)
    assert bounds.beside(150)["regret_to_timing_oracle"] == 1.5
    assert Bounds.of({"never": 120, "always": None}, 100).headroom is None
    assert Bounds.of({"never": 120}, None).headroom is None


def test_real_runs_have_a_communication_too() -> None:
    def cell(seed: int, **summary: float) -> Cell:
        return Cell(
            str(seed), "plain", "id_val", "static", "baseline", seed, "finished", engine="distdgl",
            summary=summary,
        )  # fmt: skip

    cells = [cell(0, fetched=20, remote_sampled=50), cell(1, fetched=30, remote_sampled=50)]
    (row,) = table(cells)
    assert row["communication"] == pytest.approx(0.5)
    (other,) = table([cell(0, fetched=20, remote_sampled=50, communication_vs_no_buffer=0.3)])
    assert other["communication"] == 0.3


def test_without_a_buffer_there_is_no_regret() -> None:
    summary = {
        "fetched": 50, "remote_sampled": 50, "min_fetched": 50, "hits": 0, "regret": 1.0,
        "regret_to_timing_oracle": 3.1,
    }  # fmt: skip
    (row,) = table([Cell("x", "s", "id_val", "none", "baseline", 0, "finished", summary=summary)])
    assert (row["communication"], row["regret"], row["regret_to_timing_oracle"]) == (1, None, None)


def test_who_gave_no_valid_answer_is_told() -> None:
    cells = [
        Cell(f"{name}{seed}", "s", "id_val", name, "llm", seed, "finished",
             summary={"valid_share": share})
        for name, shares in [("mute", (0.0, 0.0)), ("fine", (1.0, 0.2)), ("not asked", (None,))]
        for seed, share in enumerate(shares)
    ]  # fmt: skip
    assert never_valid(cells) == {"mute": 2}


def test_below_two_percent_there_is_nothing_to_decide() -> None:
    def cell(scenario: str, seed: int, headroom: float | None) -> Cell:
        summary = {
            "headroom": headroom, "best_constant": 100, "best_constant_schedule": "always"
        }  # fmt: skip
        return Cell(
            f"{scenario}{seed}", scenario, "id_val", "static", "baseline", seed, "finished",
            summary=summary,
        )  # fmt: skip

    cells = [
        *(cell("some", s, h) for s, h in ((0, 0.01), (1, 0.031))),
        *(cell("none", s, h) for s, h in ((0, 0.01), (1, 0.029))),
        cell("unknown", 0, None),
    ]
    rows = {row["name"]: row for row in headroom_table(cells)}
    assert rows["some"]["headroom"] == pytest.approx(0.0205)
    assert [rows[n]["verdict"] for n in ("some", "none", "unknown")] == ["", NOTHING, "not known"]


def test_time_left_goes_by_what_cells_of_the_same_controller_took() -> None:
    def planned(digest: str, controller: str) -> Planned:
        return Planned(
            digest, "s", "id_val", "", controller, "heuristic", "replay", Scenario.make(),
            Spec("fixed"),
        )  # fmt: skip

    def ended(digest: str, controller: str, seconds: float) -> Cell:
        return Cell(digest, "s", "id_val", controller, "llm", 0, "finished", seconds=seconds)

    remaining = Remaining(jobs=2)
    cells = [planned(f"{c}{i}", c) for c in ("quick", "slow") for i in range(3)]
    remaining.plan(cells, {"slow0": ended("slow0", "slow", 100.0)})
    remaining.end(ended("quick0", "quick", 2.0), True)
    assert remaining.seconds == (2 * 2.0 + 2 * 100.0) / 2
    assert (words(12.3), words(600.0), words(7200.0)) == ("12 s", "10 min", "2.0 h")
