"""Commands: ``rudder sync`` and ``rudder ui``."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from rudder.cli.options import AsJson, HomeDir
from rudder.cli.output import emit, say
from rudder.home import Home


def sync(
    uri: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--uri",
            "--tracking-uri",
            help="send all to this MLflow server or database",
            show_default="where each belongs",
        ),
    ] = None,
    home: HomeDir = None,
    as_json: AsJson = False,
) -> int:
    """Send runs to MLflow that could not reach it when they ended.

    Nothing is sent twice, however often this is interrupted or repeated. Exit code 1 if a run could
    not be sent; it stays.
    """
    from rudder.tracking.sending import sync as send_all

    where = Home.resolve(home)
    rows: list[dict[str, Any]] = send_all(where, uri)
    if rows or as_json:
        emit(rows, as_json=as_json, columns=("run", "experiment", "sent", "run_id", "reason"))
    else:
        say(f"Nothing to send in {where.outbox}.")
    return 0 if all(row["sent"] for row in rows) else 1


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="port to listen on")] = 5000,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", help="start no browser")] = False,
    home: HomeDir = None,
) -> None:
    """Show the runs in the MLflow UI, until Ctrl-C."""
    from rudder.tracking.ui import serve

    serve(Home.resolve(home), host, port, open_browser=not no_open)
