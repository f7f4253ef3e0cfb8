"""What lies in a collection's directory, and what is refused there."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rudder_training_ml.collection import CollectedRun, Collection, Request, begin

from rudder.errors import CollectionError, MissingPathError, PathTakenError
from rudder.home import Home

REQUEST = Request("small", "0123", "replay", (0, 1, 2), ("always", "random:p=0.5"))
RUN = CollectedRun(
    "a-0", "a", "id_train", 0, "always", "abcd", "sbm", "t0", "traces/t0.trace", "runs/a-0"
)


def made(home: Home, name: str = "small") -> Collection:
    """A finished collection of one run, which holds as much as is looked at here."""
    folder = home.collections / name
    begin(folder, REQUEST)
    collection = Collection(folder, home, name, REQUEST, {"numpy": "1"}, (RUN,))
    collection.run_dir(RUN).mkdir()
    (collection.run_dir(RUN) / "run.json").write_text("{}")
    collection.save()
    return collection


def test_what_was_written_is_read(home: Home) -> None:
    collection = made(home)
    assert Collection.open("small", home) == collection
    assert Collection.open(collection.folder, home) == collection
    assert collection.run_dir(RUN) == home.collections / "small" / "runs" / "a-0"
    assert collection.trace(RUN) == home.traces / "t0.trace"
    elsewhere = dataclasses.replace(RUN, trace="/elsewhere/t0.trace")
    assert collection.trace(elsewhere) == Path("/elsewhere/t0.trace")
    assert collection.digest() == Collection.open("small", home).digest()
    assert len(collection.digest()) == 64


def test_the_newest_finished_one_is_meant_by_none(home: Home) -> None:
    with pytest.raises(MissingPathError, match=r"no finished collection .*rudder collect train"):
        Collection.open(None, home)
    for age, name in enumerate(["b", "a", "c"]):
        made(home, name)
        os.utime(home.collections / name / "collection.json", (1000 - age, 1000 - age))
    begin(home.collections / "begun", REQUEST)
    assert Collection.open(None, home).name == "b"


def test_what_is_no_finished_collection(home: Home) -> None:
    made(home)
    with pytest.raises(MissingPathError, match=r"no collection at .*other.*; there are small"):
        Collection.open("other", home)
    begin(home.collections / "begun", REQUEST)
    with pytest.raises(CollectionError, match=r"not finished.*rudder collect small --name begun"):
        Collection.open("begun", home)
    (home.collections / "small" / "runs" / "a-0" / "run.json").unlink()
    with pytest.raises(CollectionError, match=r"lacks the run a-0.*--name small"):
        Collection.open("small", home)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 2}, "schema version 2, this Rudder reads 1"),
        ({"engine": "guess"}, "engine"),
        ({"other": 1}, "other"),
        ({"runs": [{"id": "a"}]}, "scenario"),
        ({"runs": [{**dataclasses.asdict(RUN), "other": 1}]}, "other"),
        ({"seeds": ["first"]}, "seeds"),
    ],
)
def test_a_damaged_one_is_refused(home: Home, change: dict[str, Any], said: str) -> None:
    path = made(home).folder / "collection.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CollectionError, match=said) as caught:
        Collection.open("small", home)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_no_json_object_is_refused(home: Home, text: str) -> None:
    (made(home).folder / "collection.json").write_text(text)
    with pytest.raises(CollectionError, match=r"collection\.json"):
        Collection.open("small", home)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"suite_digest": "4567"}, "suite_digest is '0123', asked for is '4567'"),
        ({"seeds": (0, 1)}, "seeds is 0, 1, 2, asked for is 0, 1"),
        ({"schedules": ("always",)}, "schedules is always, random:p=0.5, asked for is always"),
        ({"engine": "distdgl"}, "engine is 'replay', asked for is 'distdgl'"),
    ],
)
def test_another_request_under_the_same_name_is_refused(
    home: Home, change: dict[str, Any], said: str
) -> None:
    folder = home.collections / "small"
    begin(folder, REQUEST)
    begin(folder, REQUEST)  # the same again goes on
    with pytest.raises(PathTakenError, match=said) as caught:
        begin(folder, dataclasses.replace(REQUEST, **change))
    assert "--name" in str(caught.value)


def test_a_directory_of_something_else_is_left_alone(home: Home) -> None:
    folder = home.collections / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(PathTakenError, match="is no collection, and not empty"):
        begin(folder, REQUEST)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
