from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rudder.tracking.provenance import git_commit


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    return folder


def test_commit_of_a_checkout_and_whether_it_was_changed(package: Path) -> None:
    git(package, "add", ".")
    git(package, "commit", "-qm", "first")
    head = git(package, "rev-parse", "HEAD")
    git_commit.cache_clear()
    assert git_commit(package) == head
    (package / "__init__.py").write_text("changed = True\n")
    git_commit.cache_clear()
    assert git_commit(package) == f"{head}-dirty"


def test_a_repository_that_only_surrounds_the_package_is_not_its_own(package: Path) -> None:
    (package.parent / "other").write_text("")
    git(package.parent, "add", "other")
    git(package.parent, "commit", "-qm", "first")
    git_commit.cache_clear()
    assert git_commit(package) is None


def test_no_repository(tmp_path: Path) -> None:
    assert git_commit(tmp_path) is None
