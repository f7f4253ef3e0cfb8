"""Suites: what a file means, what is refused, and finding one by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rudder.errors import DuplicateNameError, SpecError, SuiteError, UnknownNameError
from rudder.registries import SUITES
from rudder.scenario import Scenario
from rudder.suite import AXES, SPLITS, Suite, find_suite, register_suites

TEXT = """
summary = "for tests"

[base]
graph = "sbm:nodes=900"
epochs = 4
parts = 2

[scenarios.plain]

[scenarios.drifting]
summary = "the fan-out grows"
fan_out = [4, 5]
fan_out_at = { 2 = [10, 25] }
epochs = 6

[scenarios.held]
split = "id_val"
seed_order = "communities"

[scenarios.wide]
split = "ood_fan_out"
each = { fan_out = [[15, 30], [20, 20]], buffer = [0.05, 500] }
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    path = tmp_path / "small.toml"
    path.write_text(TEXT)
    return Suite.read(path)


def test_a_file_means_scenarios_with_splits(suite: Suite, tmp_path: Path) -> None:
    assert (suite.name, suite.summary, suite.path) == (
        "small", "for tests", tmp_path / "small.toml",
    )  # fmt: skip
    assert suite.names == [
        "plain", "drifting", "held",
        "wide/fan_out=[15,30],buffer=0.05", "wide/fan_out=[15,30],buffer=500",
        "wide/fan_out=[20,20],buffer=0.05", "wide/fan_out=[20,20],buffer=500",
    ]  # fmt: skip
    assert suite.splits == ["id_train", "id_val", "ood_fan_out"]
    by_name = {item.name: item for item in suite}
    base = {"graph": "sbm:nodes=900", "epochs": 4, "parts": 2}
    assert by_name["plain"].scenario == Scenario.make(**base)
    drifting = by_name["drifting"]
    assert drifting.scenario == Scenario.make(
        **{**base, "epochs": 6}, fan_out=(4, 5), fan_out_at={2: (10, 25)}
    )
    assert (drifting.axis, drifting.summary) == ("", "the fan-out grows")
    assert drifting.changes == {"fan_out": [4, 5], "fan_out_at": {"2": [10, 25]}, "epochs": 6}
    last = by_name["wide/fan_out=[20,20],buffer=500"]
    assert (last.axis, last.scenario.buffer, type(last.scenario.buffer)) == ("fan_out", 500, int)
    assert last.changes == {"fan_out": [20, 20], "buffer": 500}
    assert suite.base == base


def test_selection(suite: Suite) -> None:
    assert suite.select(["pl*", "held"]).names == ["plain", "held"]
    assert suite.select(["wide"]).names == suite.names[3:]  # a table stands for its combinations
    # Brackets are a pattern's own, but a name as it is listed must do.
    assert suite.select([suite.names[4]]).names == [suite.names[4]]
    assert suite.select(["*buffer=500"], ["ood_*"]).names == [suite.names[4], suite.names[6]]
    assert suite.select(splits=["id_*"]).names == ["plain", "drifting", "held"]
    kept = suite.select()
    assert kept == suite
    with pytest.raises(UnknownNameError, match="'narrow'; there are plain, drifting"):
        suite.select(["plain", "narrow"])
    with pytest.raises(UnknownNameError, match="'ood_rate'; there are id_train"):
        suite.select(splits=["ood_rate"])
    with pytest.raises(UnknownNameError, match="no scenario fits both"):
        suite.select(["plain"], ["id_val"])


def test_the_digest_is_of_names_splits_and_scenarios(suite: Suite) -> None:
    def digest(old: str, new: str) -> str:
        assert old in TEXT
        path = suite.path
        assert path is not None
        path.write_text(TEXT.replace(old, new))
        return Suite.read(path).digest()

    assert digest("parts = 2", "parts = 2") == suite.digest()
    assert digest("for tests", "other words") == suite.digest()
    changed = {
        digest("epochs = 6", "epochs = 7"),
        digest("[scenarios.plain]", "[scenarios.even]"),
        digest('"id_val"', '"id_train"'),
        suite.select(["plain"]).digest(),
    }
    assert len(changed) == 4
    assert suite.digest() not in changed


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[scenarios]", "needs at least one table"),
        ("", "needs at least one table"),
        ("other = 1\n[scenarios.a]", "unknown other"),
        ("base = 3\n[scenarios.a]", "needs at least one table"),
        ("summary = 3\n[scenarios.a]", "summary must be text, found 3"),
        ("[scenarios]\na = 3", "scenarios.a must be a table, found 3"),
        ('[scenarios." "]', "a scenario's name is printable text on one line, found ' '"),
        ('[scenarios."a\\nb"]', "a scenario's name is printable text"),
        ("[scenarios.a]\nsplit = 'ood_weather'", r"a\]: split = 'ood_weather'.*ood_rate"),
        ("[scenarios.a]\nsummary = 3", r"\[scenarios.a\]: summary must be text"),
        ("[scenarios.a]\nbufer = 0.1", r"\[scenarios.a\]: bufer = 0.1: no such field"),
        ("[scenarios.a]\nbuffer = 2.5", r"\[scenarios.a\]: buffer = 2.5"),
        ("[scenarios.a]\nseed = 1", "seed is not a suite's to fix"),
        ("[base]\nseed = 1\n[scenarios.a]", "seed is not a suite's to fix"),
        ("[scenarios.a]\neach = { seed = [0, 1] }", "seed is not a suite's to fix"),
        ("[scenarios.a]\neach = { buffer = 0.1 }", "each must map fields to lists"),
        ("[scenarios.a]\neach = { buffer = [] }", "each must map fields to lists"),
        ("[scenarios.a]\neach = 3", "each must map fields to lists"),
        ("[scenarios.a]\nrate = 1\neach = { rate = [2, 3] }", "rate is given twice"),
        ("[scenarios.a]\neach = { rate = [2, 2] }", "two scenarios are named 'a/rate=2'"),
        ("[scenarios.a]\n[scenarios.b]\nsplit = 'id_val'", "'b' is the same scenario as 'a'"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, table: str, said: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(table)
    with pytest.raises(SuiteError, match=said) as caught:
        Suite.read(path)
    assert str(path) in str(caught.value)


def test_every_axis_has_a_split() -> None:
    assert SPLITS[:2] == ("id_train", "id_val")
    assert set(SPLITS[2:]) == {f"ood_{axis}" for axis in AXES}


def test_finding_one(suite: Suite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known: dict[str, Any] = dict(SUITES._entries)
    monkeypatch.setattr(SUITES, "_entries", known)
    monkeypatch.chdir(tmp_path)
    assert find_suite("small.toml") == suite
    with pytest.raises(UnknownNameError, match="no suite is named 'small'"):
        find_suite("small")
    register_suites(tmp_path)
    assert find_suite("small") == suite
    assert SUITES.entry("small").summary == "for tests"
    assert SUITES.origin("small") == str(tmp_path / "small.toml")
    with pytest.raises(DuplicateNameError, match="registered twice"):
        register_suites(tmp_path)
    with pytest.raises(SpecError, match="no such file"):
        find_suite("absent.toml")


def test_a_broken_file_is_found_when_it_is_registered(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("summary = 3")
    with pytest.raises(SpecError, match="summary must be text"):
        register_suites(tmp_path)
    (tmp_path / "broken.toml").write_text("summary = ")
    with pytest.raises(SpecError, match="is not TOML"):
        register_suites(tmp_path)
