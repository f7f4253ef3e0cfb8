"""``.ci/environment.sh``, which ``make`` installs with: it says what a machine lacks, first."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHON = Path(sys.executable).resolve()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the script alone, and ``bin`` before everything else on PATH."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(REPOSITORY / ".ci" / "environment.sh", tmp_path / ".ci")
    return tmp_path


def stub(checkout: Path, name: str, script: str) -> Path:
    path = checkout / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def install(checkout: Path, python: str | Path = PYTHON) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}",
        "PYTHON": str(python),
    }
    return subprocess.run(
        [str(checkout / ".ci" / "environment.sh"), "wheel"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def refused(checkout: Path, python: str | Path = PYTHON) -> str:
    done = install(checkout, python)
    assert done.returncode == 1
    assert not (checkout / ".venv").exists()
    return done.stderr


def test_no_python_that_fits(checkout: Path) -> None:
    old = stub(checkout, "python-too-old", "exit 1")
    message = refused(checkout, old)
    assert "no Python 3.10, 3.11 or 3.12 found" in message
    assert "python3-venv" in message
    assert "make PYTHON=" in message


def test_a_python_without_venv(checkout: Path) -> None:
    bare = stub(
        checkout, "python-bare", f'case "$*" in *ensurepip*) exit 1;; esac; exec {PYTHON} "$@"'
    )
    assert "apt-get install python3-venv" in refused(checkout, bare)


def test_a_full_disk(checkout: Path) -> None:
    stub(checkout, "df", "echo Filesystem; echo /dev/x 9000000 6000000 3000000 67% /")
    assert "has 2 GB free" in refused(checkout)


def test_another_system(checkout: Path) -> None:
    stub(checkout, "uname", "echo Darwin arm64")
    assert "this is Darwin arm64" in refused(checkout)


def test_a_missing_system_library(checkout: Path) -> None:
    stub(checkout, "ldconfig", "echo libstdc++.so.6")
    assert "apt-get install libgomp1" in refused(checkout)
    stub(checkout, "ldconfig", "echo libgomp.so.1")
    assert "libstdc++6" in refused(checkout)
