"""What commands print: tables or JSON on stdout, everything else on stderr."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.table import Table

from rudder.plain import plain

if TYPE_CHECKING:
    from rudder.engine import Progress

WIDE = 200
"""Columns of a table that does not go to a terminal, so that rows stay on one line."""


def console(*, stderr: bool = False) -> Console:
    """A Rich console on today's stdout or stderr."""
    stream = sys.stderr if stderr else sys.stdout
    wide = None if stream.isatty() or "COLUMNS" in os.environ else WIDE
    return Console(file=stream, width=wide, highlight=False, soft_wrap=wide is not None)


def emit(
    found: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    as_json: bool,
    columns: Sequence[str] | None = None,
    title: str = "",
) -> None:
    """Print a report: a list of objects as a table of one row each, a single one as key and value.

    Args:
        columns: keys to show in the table, in order; default: those of the first object. JSON
            always holds all of them.
    """
    if as_json:
        print(json.dumps(plain(found), indent=2, ensure_ascii=False, allow_nan=False))
        return
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    if isinstance(found, Mapping):
        table.show_header = False
        table.add_column(style="cyan", no_wrap=True)
        table.add_column()
        for key in columns or list(found):
            table.add_row(key.replace("_", " "), _cell(found[key]))
    else:
        names = list(columns) if columns else list(found[0]) if found else []
        for name in names:
            numeric = any(isinstance(row.get(name), int | float) for row in found)
            table.add_column(name.replace("_", " "), justify="right" if numeric else "left")
        for row in found:
            table.add_row(*(_cell(row.get(name)) for name in names))
    console().print(table)


def say(message: str) -> None:
    """A line for people, on stderr."""
    print(message, file=sys.stderr)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return escape(", ".join(f"{key}={_cell(item)}" for key, item in value.items())) or "-"
    if isinstance(value, list | tuple):
        return escape(", ".join(_cell(item) for item in value)) or "-"
    return escape(str(value))


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Progress]:
    """A progress bar on stderr, one line per phase; silent where stderr is no terminal.

    What controllers and other plug-ins print meanwhile goes to stderr, too: stdout is the report's.

    >>> with progress(quiet=True) as report:
    ...     report("train", 0.5)
    """
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    err = console(stderr=True)
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        console=err,
        disable=quiet or not err.is_terminal,
    )
    phases: dict[str, TaskID] = {}

    def report(phase: str, share: float) -> None:
        if phase not in phases:
            phases[phase] = bar.add_task(phase, total=1.0)
        bar.update(phases[phase], completed=min(max(share, 0.0), 1.0))

    with redirect_stdout(sys.stderr), bar:
        yield report


def log_handler() -> logging.Handler:
    """Log lines on stderr: around the progress bar on a terminal, plain elsewhere."""
    if sys.stderr.isatty():
        return RichHandler(console=Console(stderr=True), show_path=False, show_time=False)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    return handler
