"""Fixtures for emulated hosts."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _importable_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hosts import ``cluster_roles``: they import from where their launcher does."""
    monkeypatch.syspath_prepend(str(HERE))


@pytest.fixture(scope="session")
def sshd() -> ModuleType:
    """Emulated hosts with a real sshd each: the module ``sshd_hosts``."""
    return _helper("sshd_hosts")


@pytest.fixture(scope="session")
def slurm() -> ModuleType:
    """Emulated hosts of a real Slurm: the module ``slurm_hosts``."""
    return _helper("slurm_hosts")


@pytest.fixture(scope="session")
def emulated() -> ModuleType:
    """Commands on emulated hosts: the module ``emulated``."""
    return _helper("emulated")


def _helper(name: str) -> ModuleType:
    """A module beside this file; what it needs of the system must be there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        module = importlib.import_module(name)
    missing = [path for path in getattr(module, "NEEDED", ()) if not Path(path).exists()]
    assert not missing, f"this test needs {', '.join(missing)}: {module.INSTALL}"
    return module
