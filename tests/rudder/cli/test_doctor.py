"""``rudder doctor``: it reports what is there, and what is wrong without failing itself."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import namedtuple
from pathlib import Path
from types import ModuleType

import pytest

from rudder import plugins
from rudder.cli import doctor
from rudder.cli.app import main
from rudder.cluster.doctor import Check
from rudder.errors import VersionError


@pytest.mark.cluster
def test_the_whole_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json", "--home", str(tmp_path / "data")])
    rows = json.loads(capsys.readouterr().out)
    found = {row["name"]: row for row in rows}
    assert len(found) == len(rows)
    assert {"rudder", "python", "dgl", "torch", "versions", "namespaces", "GPU", "HOME"} <= set(
        found
    )
    assert set(found["torch"]) == {"name", "ok", "found", "advice"}
    assert str(tmp_path / "data") in found["data directory"]["found"]
    assert code == (1 if any(row["ok"] is False for row in rows) else 0)


@pytest.fixture
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "machine", lambda: [Check("namespaces", True, "allowed")])
    monkeypatch.setattr(doctor, "gpu", lambda: Check("GPU", None, "none"))


@pytest.mark.usefixtures("quiet_machine")
def test_people_get_a_table_and_a_failed_check_is_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["doctor", "--home", str(tmp_path)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "FAILS" not in out
    assert "namespaces" in out
    monkeypatch.setattr(plugins, "broken", {"theirs": "ImportError: no module named x"})
    assert main(arguments) == 1
    [line] = [li for li in capsys.readouterr().out.splitlines() if li.startswith("plug-in theirs")]
    assert "FAILS" in line
    assert "no module named x" in line


def named(checks: list[Check], name: str) -> Check:
    [check] = [check for check in checks if check.name == name]
    return check


def test_missing_libraries_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda library: None)
    found = list(doctor.installation())
    assert named(found, "dgl").ok is False
    assert named(found, "xgboost").ok is None
    assert "classifiers" in named(found, "xgboost").advice


def test_versions_that_do_not_fit_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise VersionError("no native libraries for torch 9")

    monkeypatch.setattr(doctor, "check_versions", refuse)
    check = named(list(doctor.installation()), "versions")
    assert check.ok is False
    assert "torch 9" in check.found


def test_the_gpu_check_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    torch.cuda = ModuleType("cuda")  # type: ignore[attr-defined]
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_name = lambda index: f"device {index}"
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert doctor.gpu() == Check("GPU", True, "device 0")

    def broken() -> bool:
        raise RuntimeError("driver too old")

    torch.cuda.is_available = broken
    assert doctor.gpu().ok is None
    assert "driver too old" in doctor.gpu().found


def test_a_home_that_cannot_be_written_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    check = doctor.user_home()
    assert check.ok is False
    assert ".dgl" in check.advice


def test_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert doctor.data_directory(tmp_path / "file").ok is False
    assert doctor.data_directory(tmp_path).ok is True
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 0, 10**9))
    assert doctor.data_directory(tmp_path).ok is None


def test_core_requirements_leave_the_extras_out() -> None:
    core = doctor.core_requirements()
    assert {"dgl", "torch", "mlflow"} <= core
    assert not {"xgboost", "transformers", "pytest"} & core


HOLDING = """
from rudder import Controller
from rudder.cluster.doctor import Check
from rudder.registries import CONTROLLERS


class Holding(Controller):
    def __init__(self, ok=True):
        self.ok = ok

    def _needs(self):
        yield Check("memory", self.ok, "about 3 GB", "" if self.ok else "a smaller model")


CONTROLLERS.register("test-holding", Holding, summary="needs what it is told to need")
"""


def test_what_a_controller_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "holding.py"
    plugin.write_text(HOLDING)
    ask = ["doctor", "--plugin", str(plugin), "--model"]
    assert main([*ask, "test-holding"]) == 0
    assert "about 3 GB" in capsys.readouterr().out
    assert main([*ask, "test-holding:ok=false", "--json"]) == 1
    [row] = json.loads(capsys.readouterr().out)
    assert row == {
        "name": "memory", "ok": False, "found": "about 3 GB", "advice": "a smaller model",
    }  # fmt: skip
    assert main(["doctor", "--model", "always", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["ok"], row["found"]) == (True, "always asks none")
    assert main(["doctor", "--model", "alway"]) == 2
    assert "always" in capsys.readouterr().err
