"""Which sweep a user means, and what lies in its directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rudder.errors import ResultError, UnknownNameError
from rudder.home import Home

from ..cells import read_cells
from .study import Study

HEAD = "sweep.json"
CELLS = "cells.jsonl"


def find_study(home: Home, text: str | None = None) -> tuple[Study, Path]:
    """A sweep with its folder: by its name, its folder, else the newest of a suite, or of all.

    Raises:
        UnknownNameError: there is none; lists those that there are.
        ResultError: it cannot be read, or has no cells yet.
    """
    folder = _folder(home, text)
    head = _head(folder)
    cells = read_cells(folder / CELLS) if (folder / CELLS).exists() else []
    if not cells:
        raise ResultError(f"{folder} has no cells yet: run 'rudder evaluate' again, it goes on")
    return Study(folder.name, cells, _facts(head)), folder


def sweeps(home: Home) -> list[Path]:
    """Folders of all sweeps, the newest first."""
    found = (home.root / "sweeps").glob(f"*/{HEAD}")
    return [p.parent for p in sorted(found, key=lambda p: (-p.stat().st_mtime, p.parent.name))]


def suite_of(head: Mapping[str, Any]) -> str:
    """The suite's name, from ``sweep.json``."""
    suite = head.get("suite")
    return str(suite.get("name", "") if isinstance(suite, Mapping) else suite or "")


def _folder(home: Home, text: str | None) -> Path:
    known = sweeps(home)
    if text is None:
        if not known:
            raise UnknownNameError(
                f"no sweep in {home.root / 'sweeps'}: 'rudder evaluate SUITE' makes one"
            )
        return known[0]
    for folder in known:
        if folder.name == text:
            return folder
    given = Path(text).expanduser()
    if (given / HEAD).is_file():
        return given.resolve()
    stem = given.stem if given.suffix == ".toml" else text
    for folder in known:
        if suite_of(_head(folder)) == stem:
            return folder
    names = ", ".join(folder.name for folder in known) or "none"
    raise UnknownNameError(
        f"no sweep, and no sweep of a suite, is named {text!r}; sweeps in "
        f"{home.root / 'sweeps'}: {names}"
    )


def _head(folder: Path) -> dict[str, Any]:
    try:
        head = json.loads((folder / HEAD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultError(f"{folder / HEAD} cannot be read: {error}") from error
    if not isinstance(head, dict):
        raise ResultError(f"{folder / HEAD} holds no sweep")
    return head


def _facts(head: Mapping[str, Any]) -> dict[str, Any]:
    """What the report's first table tells of a sweep besides what its cells say."""
    suite = head.get("suite")
    digest = suite.get("digest") if isinstance(suite, Mapping) else head.get("suite_digest")
    told = {"suite": suite_of(head), "digest": digest, "versions": head.get("versions")}
    return {key: value for key, value in told.items() if value}
