"""The version check looks at DGL's library files and names the pairs that work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rudder import versions
from rudder.errors import VersionError


def dgl_for(folder: Path, *torch: str, tensoradapter: tuple[str, ...] | None = None) -> Path:
    for place, library, found in (
        ("graphbolt", "graphbolt", torch),
        (
            "tensoradapter/pytorch",
            "tensoradapter",
            torch if tensoradapter is None else tensoradapter,
        ),
    ):
        (folder / place).mkdir(parents=True)
        for version in found:
            (folder / place / f"lib{library}_pytorch_{version}.so").touch()
    return folder


def test_the_installed_ones_work_together() -> None:
    before = set(sys.modules)
    versions.check_versions()
    assert not {"dgl", "torch", "torchdata"} & (set(sys.modules) - before)
    assert "2.2.1" in versions.torch_versions_of_dgl(versions.package_folder("dgl") or Path())


def test_a_torch_without_library_gets_one_line_with_those_that_work(tmp_path: Path) -> None:
    dgl = dgl_for(tmp_path, "2.10.0", "2.2.0", "2.2.1")
    versions.check_versions(dgl=dgl, torch="2.2.1+cu121")
    with pytest.raises(VersionError) as caught:
        versions.check_versions(dgl=dgl, torch="2.4.0")
    message = str(caught.value)
    assert "torch 2.4.0" in message
    assert "2.2.0, 2.2.1, 2.10.0" in message
    assert "\n" not in message


def test_a_library_of_every_kind_is_needed(tmp_path: Path) -> None:
    dgl = dgl_for(tmp_path, "2.2.0", "2.2.1", tensoradapter=("2.2.1",))
    assert versions.torch_versions_of_dgl(dgl) == ["2.2.1"]
    with pytest.raises(VersionError, match=r"works with torch 2\.2\.1"):
        versions.check_versions(dgl=dgl, torch="2.2.0")


def test_other_partners_are_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VersionError, match=r"torchdata.*0\.7\.1"):
        versions.check_versions(torchdata=tmp_path)
    real = versions.installed
    monkeypatch.setattr(versions, "installed", lambda n: "2.1.0" if n == "numpy" else real(n))
    with pytest.raises(VersionError, match=r"numpy below 2, found 2\.1\.0"):
        versions.check_versions()
    monkeypatch.setattr(versions, "package_folder", lambda n: None)
    with pytest.raises(VersionError, match="dgl is not installed"):
        versions.check_versions()
