"""``rudder doctor --clean``: what dead runs have left, listed, and removed by whoever agrees."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from rudder.cli.output import emit, say
from rudder.leftovers import Leftover

COLUMNS = ("kind", "what", "proof", "removed")


def clean_up(found: Sequence[Leftover], *, yes: bool, as_json: bool) -> None:
    """List, ask where a person can answer, remove, and say what was.

    Raises:
        typer.Exit: with 1, if something could not be removed.
    """
    agreed = yes
    if found and not yes and not as_json and sys.stdin.isatty():
        emit(_rows(found, ["no"] * len(found)), as_json=False, columns=COLUMNS[:3])
        agreed = typer.confirm(f"Remove these {len(found)}?", err=True)
    removed = [_remove(each) if agreed else "no" for each in found]
    emit(_rows(found, removed), as_json=as_json, columns=COLUMNS)
    if not found:
        say("dead runs have left nothing")
    elif not agreed:
        say("nothing was removed; --yes removes it")
    if agreed and set(removed) - {"yes"}:
        raise typer.Exit(1)


def _remove(leftover: Leftover) -> str:
    try:
        leftover.remove()
    except OSError as error:
        return f"no: {error}"
    return "yes"


def _rows(found: Sequence[Leftover], removed: Sequence[str]) -> list[dict[str, str]]:
    return [
        {
            "name": each.what,
            "kind": each.kind,
            "what": each.what,
            "proof": each.proof,
            "removed": done,
        }
        for each, done in zip(found, removed, strict=True)
    ]
