"""Traces by name: those that are shipped, those in the data directory, or any directory."""

from __future__ import annotations

from pathlib import Path

from rudder.errors import MissingPathError, UnknownNameError
from rudder.home import Home
from rudder.trace.format import SUFFIX


def trace_folder(path: Path) -> Path:
    """The directory of a trace that is to be made at ``path``: absolute, named ``….trace``."""
    path = path.expanduser().resolve()
    return path if path.suffix == SUFFIX else path.parent / (path.name + SUFFIX)


def find_trace(text: str, home: Home) -> Path:
    """The directory that a user means: a path, a name under ``traces/``, or a registered name.

    ``.trace`` may be left out, as where the trace was made.

    Raises:
        MissingPathError: none of them.
    """
    from rudder.registries import TRACES

    given = Path(text).expanduser()
    for path in (given, trace_folder(given), home.traces / text, home.traces / (text + SUFFIX)):
        if path.is_dir():
            return path.resolve()
    try:
        TRACES.entry(text)
    except UnknownNameError as error:
        raise MissingPathError(
            f"no trace at {Path(text).expanduser().resolve()} nor in {home.traces}, and {error}"
        ) from error
    shipped: Path = TRACES.build(text)
    return shipped
