"""Plug-ins: files by hash, broken packages, and clashes that are never hidden."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rudder import plugins
from rudder.errors import DuplicateNameError, MissingPathError, PluginError
from rudder.plugins import PluginFile, load_file, load_files
from rudder.registries import CONTROLLERS

FILE = """
from rudder.controller import Controller
from rudder.decision import Decision
from rudder.registries import CONTROLLERS

class Mine(Controller):
    "Always replaces."

    def _decide(self, observation):
        return Decision(replace=True)

CONTROLLERS.register({name!r}, Mine)
"""


@pytest.fixture
def plugin(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Write a plug-in file that registers a controller of this name, gone after the test."""

    def write(name: str) -> Path:
        request.addfinalizer(lambda: CONTROLLERS._entries.pop(name, None))
        path = tmp_path / f"{name.replace('-', '_')}.py"
        path.write_text(FILE.format(name=name))
        return path

    return write


def test_a_file_registers_and_loads_once(plugin: Callable[[str], Path]) -> None:
    path = plugin("test-once")
    loaded = load_file(path)
    assert loaded == load_file(path)  # again: no duplicate
    assert loaded.path == str(path)
    assert type(CONTROLLERS.build("test-once")).__name__ == "Mine"
    assert CONTROLLERS.origin("test-once").startswith(f"{path}:")
    load_files([loaded])


def test_a_changed_file_is_refused(plugin: Callable[[str], Path]) -> None:
    path = plugin("test-changed")
    loaded = load_file(path)
    path.write_text(path.read_text() + "\n# changed\n")
    with pytest.raises(PluginError, match=r"changed since the job was made.*start the job again"):
        load_file(path, loaded.sha256)
    with pytest.raises(PluginError, match="changed"):
        load_files([PluginFile(str(path), loaded.sha256)])


def test_what_was_hashed_is_what_runs(plugin: Callable[[str], Path]) -> None:
    path = plugin("test-hashed")
    reads: list[Path] = []
    real = Path.read_bytes

    def read_then_swap(self: Path) -> bytes:
        content = real(self)
        reads.append(self)
        self.write_text("raise RuntimeError('swapped after it was hashed')")
        return content

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", read_then_swap)
        load_file(path)
    assert reads == [path]
    assert "test-hashed" in CONTROLLERS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("raise RuntimeError('boom')", "failed: RuntimeError: boom"),
        ("def broken(:", "failed: SyntaxError"),
        ("import no_such_module_at_all", "failed: ModuleNotFoundError"),
    ],
)
def test_a_file_that_fails_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(content)
    before = set(sys.modules)
    for _ in range(2):  # a second try fails the same way: nothing half-loaded stays
        with pytest.raises(PluginError, match=message) as caught:
            load_file(path)
        assert str(path) in str(caught.value)
    assert not {m for m in set(sys.modules) - before if m.startswith("rudder_plugin_")}


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match=r"missing\.py"):
        load_file(tmp_path / "missing.py")
    (tmp_path / "plugin.txt").write_text("x = 1")
    with pytest.raises(PluginError, match=r"must end in \.py"):
        load_file(tmp_path / "plugin.txt")


def test_a_taken_name_names_both_places(plugin: Callable[[str], Path], tmp_path: Path) -> None:
    first = plugin("test-taken")
    load_file(first)
    second = tmp_path / "second.py"
    second.write_text(FILE.format(name="test-taken") + "# another file\n")
    with pytest.raises(DuplicateNameError) as caught:
        load_file(second)
    assert str(first) in str(caught.value)
    assert str(second) in str(caught.value)


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As before the first look-up, with no plug-in installed."""
    monkeypatch.setattr(plugins, "_loaded", False)
    monkeypatch.setattr(plugins, "_clash", None)
    monkeypatch.setattr(plugins, "broken", {})
    return monkeypatch


class _Point:
    def __init__(self, name: str, value: str) -> None:
        self.name = name
        self.value = value


def _install(patch: pytest.MonkeyPatch, folder: Path, **modules: str) -> None:
    for name, content in modules.items():
        (folder / f"{name}.py").write_text(content)
    patch.syspath_prepend(str(folder))
    points = [_Point(name.removeprefix("installed_"), name) for name in modules]
    patch.setattr(plugins, "entry_points", lambda group: points)


def test_a_broken_package_is_left_out_and_told(
    unloaded: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _install(
        unloaded,
        tmp_path,
        installed_bad="raise OSError('no licence server')",
        installed_good="loaded = True",
    )
    with caplog.at_level(logging.WARNING, logger="rudder"):
        plugins.load_installed()
    assert plugins.broken == {"bad": "OSError: no licence server"}
    assert "bad" in caplog.text
    assert "no licence server" in caplog.text
    assert sys.modules["installed_good"].loaded is True


def test_a_clash_between_packages_is_raised_every_time(
    unloaded: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: CONTROLLERS._entries.pop("test-clash", None))
    register = (
        "from rudder.registries import CONTROLLERS\nCONTROLLERS.register('test-clash', 'm:A')"
    )
    _install(unloaded, tmp_path, installed_one=register, installed_two=register)
    for _ in range(2):
        with pytest.raises(DuplicateNameError, match=r"installed_one.*installed_two"):
            plugins.load_installed()
