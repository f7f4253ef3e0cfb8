"""``model.json``: written, read, and refused before weights are read when anything is off."""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from pydantic import ValidationError

from rudder.errors import ModelError
from rudder.model import MANIFEST_FILE, Column, FittedModel, ModelManifest, Support
from rudder.observation import SCHEMA_VERSION

from .conftest import COLUMNS, READ, WEIGHTS, MakeModel, training_rows


def refused(folder: Path) -> str:
    """The message with which a model is refused, its weights unread."""
    READ.clear()
    with pytest.raises(ModelError) as caught:
        FittedModel.load(folder)
    assert READ == []
    assert str(folder) in str(caught.value)
    return str(caught.value)


def test_written_and_read(make_model: MakeModel) -> None:
    folder = make_model(
        threshold=0.4, metrics={"auc": 0.9, "f1": None}, fitted={"rounds": 3}, seed=7,
        made_with={"numpy": "1"}, created="2025-01-01T00:00:00+00:00",
    )  # fmt: skip
    found = ModelManifest.read(folder)
    assert found.names == COLUMNS
    assert str(found.spec) == "line-of-tests:slope=1.0"
    assert found.support == Support.of(training_rows())  # every digit
    assert found.training.seeds == (0, 1)
    assert (found.threshold, found.metrics, found.fitted) == (
        0.4, {"auc": 0.9, "f1": None}, {"rounds": 3},
    )  # fmt: skip
    # Written again it is the same file.
    before = (folder / MANIFEST_FILE).read_bytes()
    found.write(folder)
    assert (folder / MANIFEST_FILE).read_bytes() == before
    FittedModel.load(folder)
    assert [folder] == READ


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m.update(threshold=0.1),
        lambda m: m["columns"].reverse(),
        lambda m: m["support"].update(limit=1e9),
        lambda m: m["training"].update(traces=[]),
        lambda m: m["compatible"].update(numpy=">=1"),
        lambda m: m.pop("seed"),
        lambda m: m.update(more=1),
        lambda m: m.pop("digest"),
        lambda m: m.update(digest="0" * 64),
    ],
)
def test_an_edited_manifest(make_model: MakeModel, edit: Callable[[Any], None]) -> None:
    path = make_model() / MANIFEST_FILE
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))
    assert "was edited" in refused(path.parent)


@pytest.mark.parametrize("content", ["", "{", "[]", "7", "null", "\xff", "[" * 100_000])
def test_no_manifest_in_it(make_model: MakeModel, content: str) -> None:
    path = make_model() / MANIFEST_FILE
    path.write_bytes(content.encode("latin-1"))
    assert MANIFEST_FILE in refused(path.parent)


def test_no_model(tmp_path: Path) -> None:
    assert "no model in" in refused(tmp_path)
    assert "no model in" in refused(tmp_path / "nowhere")


def test_another_schema_of_manifests(make_model: MakeModel) -> None:
    message = refused(make_model(schema_version=2))
    assert "schema version 2" in message
    assert "fit the model anew" in message


def test_another_schema_of_observations(make_model: MakeModel) -> None:
    message = refused(make_model(observation_schema=SCHEMA_VERSION + 1))
    assert f"version {SCHEMA_VERSION + 1}" in message
    assert f"version {SCHEMA_VERSION};" in message


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ([("hit_rate", "share"), ("stale_share", "share"), ("hits", "share")], "so: hits"),
        ([("hit_rate", "percent"), ("stale_share", "share"), ("progress", "share")], "so: hit_r"),
        ([("hit_rate", "share")] * 3, "repeated"),
        ([("hit_rate", "share")], "another number than its support"),
    ],
)
def test_columns_that_observations_do_not_have(
    make_model: MakeModel, columns: list[tuple[str, str]], named: str
) -> None:
    made = tuple(Column(name=name, unit=unit) for name, unit in columns)
    assert named in refused(make_model(columns=made))


@pytest.mark.parametrize("estimator", [{}, {"name": ""}, {"name": "line", "more": 1}])
def test_an_estimator_that_is_no_spec(make_model: MakeModel, estimator: dict[str, Any]) -> None:
    assert "does not hold a model's facts" in refused(make_model(estimator=estimator))


def test_values_that_json_cannot_say(make_model: MakeModel) -> None:
    for fields in ({"metrics": {"auc": float("nan")}}, {"threshold": float("inf")}):
        with pytest.raises(ValidationError):
            make_model(str(fields), **fields)
    # What an estimator tells of its fit may hold one; it is written as null, which is JSON.
    assert ModelManifest.read(make_model(fitted={"loss": float("nan")})).fitted == {"loss": None}


def test_changed_weights(make_model: MakeModel) -> None:
    folder = make_model()
    (folder / WEIGHTS).write_text("0.6")
    assert str(folder / WEIGHTS) in refused(folder)


def test_missing_weights(make_model: MakeModel) -> None:
    folder = make_model()
    (folder / WEIGHTS).unlink()
    assert f"should hold {WEIGHTS}" in refused(folder)


@pytest.mark.parametrize("name", ["more.json", "sub/more.json"])
def test_a_file_too_many(make_model: MakeModel, name: str) -> None:
    folder = make_model()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("")
    assert name in refused(folder)


def test_links(make_model: MakeModel, tmp_path: Path) -> None:
    folder = make_model()
    elsewhere = tmp_path / "elsewhere"
    (folder / WEIGHTS).rename(elsewhere)
    (folder / WEIGHTS).symlink_to(elsewhere)  # the same content
    assert str(folder / WEIGHTS) in refused(folder)
    folder = make_model("two")
    (folder / "sub").symlink_to(tmp_path)
    assert "sub" in refused(folder)


def test_a_pipe_in_place_of_weights(make_model: MakeModel) -> None:
    """Reading it would wait for ever."""
    folder = make_model()
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)
    assert str(folder / WEIGHTS) in refused(folder)


@pytest.mark.parametrize("name", ["../line/line.json", "/etc/hostname"])
def test_files_from_elsewhere(make_model: MakeModel, name: str) -> None:
    assert name in refused(make_model(files={name: "0" * 64}))


def test_versions(make_model: MakeModel) -> None:
    installed = Version(importlib.metadata.version("numpy"))
    FittedModel.load(make_model("fits", compatible={"numpy": f"~={installed.major}.0"}))
    message = refused(make_model("newer", compatible={"numpy": f">{installed}"}))
    assert f"needs numpy >{installed}, but {installed} is installed" in message
    older = f"<{installed.major}"
    assert f"needs numpy {older}" in refused(make_model("older", compatible={"numpy": older}))
    message = refused(make_model("gone", compatible={"no-such-library": ">=1"}))
    assert "not installed" in message
    assert "no range" in refused(make_model("odd", compatible={"numpy": "new"}))


def test_a_pre_release_is_a_version(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_model(compatible={"numpy": ">=1.26,<3"})
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.0rc1")
    ModelManifest.read(folder)
