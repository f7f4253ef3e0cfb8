"""Which sweep a user means, and what lies in its directory."""

from __future__ import annotations

from pathlib import Path

from rudder.errors import SweepError, UnknownNameError
from rudder.home import Home

from ..sweep import HEAD, Sweep, chosen
from .study import Study


def find_study(home: Home, text: str | None = None) -> tuple[Study, Path]:
    """A sweep with its folder: by its name, its folder, else the newest of a suite, or of all.

    Raises:
        UnknownNameError: there is none; lists those that there are.
        SweepError, ResultError: it cannot be read, or has no cells yet.
    """
    folder = _folder(home, text)
    sweep = Sweep.open(folder)
    every = sweep.all_cells()
    cells = chosen(sweep.head, every)
    if not cells:
        raise SweepError(f"{folder} has no cells yet: run 'rudder evaluate' again, it goes on")
    facts = {
        "suite": _suite(sweep),
        "digest": sweep.head["suite"].get("digest"),
        "begun": sweep.head.get("created"),
        "versions": sweep.head.get("versions"),
    }
    head = {key: told for key, told in facts.items() if told}
    missing = sum(digest not in every for digest in sweep.head.get("cells") or ())
    return Study(folder.name, cells, head, missing), folder


def sweeps(home: Home) -> list[Path]:
    """Folders of all sweeps, the one that was last worked at first."""
    found = home.sweeps.glob(f"*/{HEAD}")
    return [p.parent for p in sorted(found, key=lambda p: (-p.stat().st_mtime, p.parent.name))]


def _folder(home: Home, text: str | None) -> Path:
    known = sweeps(home)
    if text is None:
        if not known:
            raise UnknownNameError(f"no sweep in {home.sweeps}: 'rudder evaluate SUITE' makes one")
        return known[0]
    for folder in known:
        if folder.name == text:
            return folder
    given = Path(text).expanduser()
    if (given / HEAD).is_file():
        return given.resolve()
    stem = given.stem if given.suffix == ".toml" else text
    for folder in known:
        if _suite(Sweep.open(folder)) == stem:
            return folder
    names = ", ".join(folder.name for folder in known) or "none"
    raise UnknownNameError(
        f"no sweep, and no sweep of a suite, is named {text!r}; sweeps in {home.sweeps}: {names}"
    )


def _suite(sweep: Sweep) -> str:
    return str(sweep.head["suite"]["name"])
