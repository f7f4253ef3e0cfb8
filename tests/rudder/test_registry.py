"""The registry: lazy targets, clashes that name both places, unknown names with a hint."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from rudder.errors import DuplicateNameError, PluginError, SpecError, UnknownNameError
from rudder.registry import Registry
from rudder.spec import Spec


class Base:
    pass


class Sized(Base):
    """Has a size.

    More about it.
    """

    def __init__(self, size: int = 1, *rest: int, from_: str = "") -> None:
        if size < 0:
            raise ValueError("size must not be negative")
        self.size = size
        self.from_ = from_


class Needy(Base):
    def __init__(self, path: str) -> None:
        self.path = path


class Foreign:
    pass


def make_sized(size: int = 1) -> Sized:
    return Sized(size)


def make_foreign() -> Foreign:
    return Foreign()


def take_anything(**params: object) -> Sized:
    return Sized(len(params))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> str:
    """Name under which this module's classes can be imported."""
    name = "registry_targets"
    found = ModuleType(name)
    for target in (
        Base, Sized, Needy, Foreign, make_sized, make_foreign, take_anything,
    ):  # fmt: skip
        setattr(found, target.__name__, target)
    monkeypatch.setitem(sys.modules, name, found)
    return name


@pytest.fixture
def registry(module: str) -> Registry:
    return Registry("thing", base=f"{module}:Base")


def test_a_target_is_imported_only_when_built(registry: Registry) -> None:
    registry.register("far", "no_such_module_at_all:Thing", summary="far away")
    assert registry.names() == ["far"]
    assert registry.resolve("far") == Spec("far")
    with pytest.raises(PluginError, match=r"far.*no_such_module_at_all:Thing.*ModuleNotFoundError"):
        registry.build("far")


def test_defaults_context_and_keywords_reach_the_target(registry: Registry, module: str) -> None:
    registry.register("sized", f"{module}:Sized", params={"size": 3})
    assert registry.build("sized").size == 3
    assert registry.build("sized:size=4").size == 4
    assert registry.build({"name": "sized", "params": {"from": "x"}}).from_ == "x"
    registry.register("needy", f"{module}:Needy")
    assert registry.build("needy", path="p").path == "p"
    assert registry.check("needy", path="p") == Spec("needy")
    registry.register("any", f"{module}:take_anything")
    assert registry.build("any:a=1,b=2").size == 2


def test_a_duplicate_names_both_places(registry: Registry, tmp_path: Path) -> None:
    spec = tmp_path / "sized.toml"
    spec.write_text('target = "registry_targets:Sized"\n')
    registry.register_toml(spec)
    with pytest.raises(DuplicateNameError) as caught:
        registry.register("sized", "registry_targets:Sized")
    assert str(spec) in str(caught.value)
    assert f"{__file__}:" in str(caught.value)


def test_an_unknown_name_gets_the_nearest_and_the_list(registry: Registry) -> None:
    for name in ("static", "always", "fixed"):
        registry.register(name, "m:A")
    with pytest.raises(UnknownNameError) as caught:
        registry.entry("fixt")
    assert str(caught.value) == (
        "no thing is named 'fixt'; did you mean 'fixed'? Known: always, fixed, static."
    )
    with pytest.raises(UnknownNameError) as caught:
        registry.build("zzzzzz:a=1")
    assert str(caught.value) == "no thing is named 'zzzzzz'. Known: always, fixed, static."
    with pytest.raises(UnknownNameError, match="Known: none"):
        Registry("thing").entry("x")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sized:sise=1", r"no parameter 'sise'; did you mean 'size'\? It takes: size, from\."),
        ("sized:zzz=1", r"no parameter 'zzz'\. It takes"),
        ("sized:rest=1", "no parameter 'rest'"),
        ("sized:size=-1", "size must not be negative"),
        ("sized:size=big", "sized:size=big"),
        ("needy", "needs path; write needy:path="),
    ],
)
def test_wrong_parameters_are_spec_errors(
    registry: Registry, module: str, spec: str, message: str
) -> None:
    registry.register("sized", f"{module}:Sized")
    registry.register("needy", f"{module}:Needy")
    with pytest.raises(SpecError, match=message):
        registry.build(spec)


def test_targets_of_another_kind_are_refused(registry: Registry, module: str) -> None:
    registry.register("class", f"{module}:Foreign")
    registry.register("function", f"{module}:make_foreign")
    registry.register("good", f"{module}:make_sized")
    with pytest.raises(PluginError, match="no subclass of registry_targets:Base"):
        registry.target("class")
    with pytest.raises(PluginError, match="returned a Foreign"):
        registry.build("function")
    assert registry.build("good:size=7").size == 7


def test_classes_may_be_registered_as_they_are(registry: Registry) -> None:
    entry = registry.register("sized", Sized)
    assert entry.target == f"{__name__}:Sized"
    assert entry.summary == "Has a size."
    assert entry.origin.startswith(f"{__file__}:")

    class Local(Base):
        pass

    with pytest.raises(SpecError, match="top of a module"):
        registry.register("local", Local)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a,b", "a=b", "a/b", "a\nb"])
def test_names_that_could_not_stand_in_a_spec_are_refused(registry: Registry, name: str) -> None:
    with pytest.raises(SpecError):
        registry.register(name, "m:A")
    with pytest.raises(SpecError, match="module:Attribute"):
        registry.register("fine", "no-colon")


@pytest.mark.parametrize(
    "text",
    [
        "summary = 'no target'",
        "target = 3",
        "target = 'm:A'\nparams = 3",
        "target = 'm:A'\nsumary = 'x'",
        "target = ",
    ],
)
def test_a_wrong_spec_file_is_named(registry: Registry, tmp_path: Path, text: str) -> None:
    spec = tmp_path / "thing.toml"
    spec.write_text(text)
    with pytest.raises(SpecError, match=str(spec)):
        registry.register_toml(spec)
    with pytest.raises(SpecError, match=r"missing\.toml"):
        registry.register_toml(tmp_path / "missing.toml")


def test_listing_by_pattern_runs_the_loader_first(registry: Registry) -> None:
    calls = []

    def load() -> None:
        if not calls:
            calls.append(1)
            registry.register("b-late", "m:A")
            assert "b-late" in registry  # looking up while loading does not recurse

    registry.register("a", "m:A")
    registry.on_first_use(load)
    assert registry.names() == ["a", "b-late"]
    assert registry.names("b*") == ["b-late"]
    assert [entry.name for entry in registry] == ["a", "b-late"]
    assert calls == [1]


def make_typed(
    count: int = 1, share: float = 0.5, on: bool = True, path: str | None = None, free: object = 0
) -> Sized:
    return Sized(count)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ("count=1.5", "count must be a whole number, found 1.5"),
        ("count=true", "count must be a whole number, found True"),
        ("share=abc", "share must be a number, found 'abc'"),
        ("on=no", "on must be true or false, found 'no'"),
        ("path=3", "path must be text .* or null, found 3"),
        ("count=null", "count must be a whole number, found None"),
    ],
)
def test_a_parameter_of_another_type_is_refused(
    monkeypatch: pytest.MonkeyPatch, params: str, says: str
) -> None:
    found = ModuleType("typed_targets")
    found.make_typed = make_typed  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "typed_targets", found)
    registry = Registry("gadget")
    registry.register("typed", "typed_targets:make_typed")
    assert registry.build("typed:count=2,share=1,on=false,path=null,free=[1]").size == 2
    with pytest.raises(SpecError, match=f"gadget 'typed:{params}': {says}"):
        registry.build(f"typed:{params}")
