"""Which code made a run."""

from __future__ import annotations

import getpass
import os
import subprocess
from functools import cache
from pathlib import Path

import rudder


@cache
def git_commit(folder: Path = Path(rudder.__file__).parent) -> str | None:
    """Commit of the checkout that a package runs from, ``-dirty`` if files differ from it.

    None where the package is installed: a repository that merely surrounds it does not count.
    """
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    return _git(folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def code_version() -> str:
    """The commit, or the package's version where there is none."""
    return git_commit() or f"rudder {rudder.__version__}"


def user() -> str:
    """The name of the user, or the number where the system knows no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None  # no git, or no repository here
    return done.stdout.strip() or None
