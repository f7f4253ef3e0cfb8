"""Which directory a model's name means, and the models in the specs of controllers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rudder.controller import Capabilities, Controller
from rudder.errors import MissingPathError, UnknownNameError
from rudder.home import Home
from rudder.model import find_model, locate, models_of
from rudder.registries import CONTROLLERS, MODELS
from rudder.spec import Spec

from .conftest import MakeModel


class Asks(Controller):
    """Needs a model."""

    tags = Capabilities(fitted_model=True)

    def __init__(self, model: str, threshold: float = 0.5) -> None:
        self.model = model


class Either(Controller):
    """Holds two others, and a parameter of the name ``model`` that means none."""

    tags = Capabilities(nested=("inside", "outside"))

    def __init__(self, inside: str, outside: str = "", model: str = "small") -> None:
        self.inside = inside


def shipped_folder(path: str) -> Path:
    return Path(path)


@pytest.fixture
def shipped(make_model: MakeModel, tmp_path: Path) -> Iterator[Path]:
    """A model that is registered, as ``shipped-of-tests``, and controllers that ask it."""
    kinds = (CONTROLLERS, MODELS)
    list(CONTROLLERS), list(MODELS)  # plug-ins register first
    before = [dict(kind._entries) for kind in kinds]
    folder = make_model("package/shipped-of-tests")
    MODELS.register("shipped-of-tests", shipped_folder, params={"path": str(folder)})
    CONTROLLERS.register("asks-of-tests", Asks, params={"model": "shipped-of-tests"})
    CONTROLLERS.register("either-of-tests", Either)
    yield folder
    for kind, entries in zip(kinds, before, strict=True):
        kind._entries.clear()
        kind._entries.update(entries)


def test_path_then_home_then_shipped(
    shipped: Path,
    make_model: MakeModel,
    home: Home,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    name = "shipped-of-tests"
    assert find_model(name) == find_model(name, home) == shipped
    # A directory of that name that is no model means nothing.
    (here / name).mkdir()
    (home.models / name).mkdir()
    assert find_model(name, home) == shipped
    (home.models / name).rmdir()
    own = make_model(home.models / name)
    assert find_model(name, home) == own
    assert find_model(name) == shipped  # no data directory asked
    (here / name).rmdir()
    near = make_model(here / name)
    assert find_model(name, home) == near
    assert find_model(str(own)) == own
    assert find_model(f"../here/{name}") == near


def test_nowhere(
    shipped: Path, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingPathError) as caught:
        find_model("shipped-of-test", home)
    message = str(caught.value)
    assert str(tmp_path / "shipped-of-test") in message
    assert str(home.models / "shipped-of-test") in message
    assert "did you mean 'shipped-of-tests'?" in message
    assert "rudder fit" in message


def test_specs_for_a_trainer(shipped: Path, make_model: MakeModel, home: Home) -> None:
    # Shipped: the trainer finds it by name, and nothing is spelled out that was not.
    assert locate(Spec.parse("asks-of-tests"), home) == Spec("asks-of-tests")
    given = Spec.parse("asks-of-tests:threshold=0.2")
    assert locate(given, home) == given
    own = make_model(home.models / "own")
    found = locate(Spec.parse("asks-of-tests:model=own,threshold=0.2"), home)
    assert found == Spec("asks-of-tests", {"model": str(own), "threshold": 0.2})
    assert locate(found, home) == found
    # The data directory's goes before the shipped one of the same name.
    mine = make_model(home.models / "shipped-of-tests")
    assert locate(Spec.parse("asks-of-tests"), home).params == {"model": str(mine)}
    with pytest.raises(MissingPathError, match="gone"):
        locate(Spec.parse("asks-of-tests:model=gone"), home)
    with pytest.raises(UnknownNameError):
        locate(Spec.parse("asks-of-testz"), home)


def test_nested_specs(shipped: Path, make_model: MakeModel, home: Home) -> None:
    # A comma in the path: specs in specs have to keep it.
    own = make_model(home.models / "own,two")
    inner = Spec("asks-of-tests", {"model": "own,two"})
    middle = Spec("either-of-tests", {"inside": str(inner), "outside": "asks-of-tests"})
    outer = Spec("either-of-tests", {"inside": str(middle), "model": "large"})
    assert models_of(outer) == ["own,two", "shipped-of-tests"]
    found = locate(Spec.parse(str(outer)), home)
    assert found.params["model"] == "large"  # no model's name here
    assert "outside" not in found.params
    assert models_of(found) == [str(own), "shipped-of-tests"]
    assert locate(Spec.parse(str(found)), home) == found


def test_controllers_without_models(shipped: Path, home: Home) -> None:
    spec = Spec.parse('either-of-tests:inside="fixed:interval=3"')
    assert models_of(spec) == []
    assert locate(spec, home) == spec
