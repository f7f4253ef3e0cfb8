"""The ``rudder`` command: finds commands in their registry and turns errors into exit codes.

A command is an entry of :data:`rudder.registries.COMMANDS`: a plain function whose parameters
carry Typer annotations. It is imported when it is invoked, so that help stays light::

    COMMANDS.register("hello", "my_package.cli:hello", summary="greet", fields={"section": "Look"})

Exit codes: 0 done, 1 the work failed, 2 wrong use, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import errno
import json
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup
from typer.exceptions import TyperException

from rudder.cli.options import Plugins, start
from rudder.cli.output import console
from rudder.errors import RudderError, UsageError
from rudder.home import Home
from rudder.registries import COMMANDS
from rudder.terminating import sigterm_as_exit

SECTIONS = ("Look", "Prepare", "Run", "Learn", "Compare", "Extend")
"""Order of the sections in the help: the workflow. Others follow by name."""
INTERRUPTED = 130
ABOUT = "Rudder steers the prefetch buffer of distributed GNN training, and compares what steers."


class _Commands(TyperGroup):
    """A Typer group whose commands live in the registry and load when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return COMMANDS.names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = COMMANDS.entry(cmd_name)  # an unknown name raises with the nearest match
        app = typer.Typer(add_completion=False, rich_markup_mode="rich")
        app.command(name=cmd_name)(COMMANDS.target(entry.name))
        return typer.main.get_command(app)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        out = console()
        out.print(f"[bold]Usage:[/] rudder {escape('[OPTIONS] COMMAND [ARGS]...')}\n\n{ABOUT}")
        sections: dict[str, Table] = {name: _grid() for name in SECTIONS}
        entries = sorted(COMMANDS, key=lambda e: (str(e.fields.get("section", "Other")), e.name))
        for entry in entries:
            table = sections.setdefault(str(entry.fields.get("section", "Other")), _grid())
            table.add_row(entry.name, escape(entry.summary))
        options = _grid()
        for parameter in self.get_params(ctx):
            options.add_row(", ".join(parameter.opts), getattr(parameter, "help", None) or "")
        for name, table in [*sections.items(), ("Options", options)]:
            if table.row_count:
                out.print(f"\n[bold]{name}[/]")
                out.print(table)
        out.print("\n'rudder COMMAND --help' tells more. Most commands have --json.")


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2), pad_edge=True)
    grid.add_column(min_width=14, style="cyan", no_wrap=True)
    grid.add_column()
    return grid


app = typer.Typer(
    cls=_Commands, add_completion=False, invoke_without_command=True, rich_markup_mode="rich"
)


def _version(asked: bool) -> None:
    if asked:
        from rudder import __version__

        typer.echo(f"rudder {__version__}")
        raise typer.Exit


@app.callback(help=ABOUT)
def _root(
    context: typer.Context,
    plugin: Plugins = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; errors are told on stderr.

    With ``--json`` an error is one JSON object with the keys ``error`` and ``message``.
    """
    args = list(sys.argv[1:] if arguments is None else arguments)
    start(args)
    try:
        with sigterm_as_exit():
            result = app(args, prog_name="rudder", standalone_mode=False)
    except TyperException as error:  # what Typer finds wrong with the arguments
        context = getattr(error, "ctx", None)
        hint = f"See '{context.command_path} --help'." if context is not None else ""
        return _fail(args, "UsageError", error.format_message(), error.exit_code, hint)
    except UsageError as error:
        return _fail(args, type(error).__name__, str(error), 2)
    except RudderError as error:
        return _fail(args, type(error).__name__, str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(args, "Interrupted", "interrupted", INTERRUPTED)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return _defect(args, error)
        advice = "make room there, or choose another data directory: --home"
        return _fail(args, "OSError", f"{Home.resolve().root}: {error}; {advice}", 1)
    except Exception as error:  # noqa: BLE001 - a defect: say so and how to report it
        return _defect(args, error)
    code = result if isinstance(result, int) else 0
    if code == INTERRUPTED:  # Typer has caught the KeyboardInterrupt
        return _fail(args, "Interrupted", "interrupted", INTERRUPTED)
    return code


def _defect(args: Sequence[str], error: Exception) -> int:
    traceback.print_exception(error)
    return _fail(
        args,
        type(error).__name__,
        f"unexpected: {error}",
        1,
        "This is a defect of Rudder or of a plug-in. Please report it with the lines above "
        "and the output of 'rudder doctor --json'.",
    )


def _fail(args: Sequence[str], kind: str, message: str, code: int, hint: str = "") -> int:
    if "--json" in args:
        print(json.dumps({"error": kind, "message": message}), file=sys.stderr)
    else:
        print(f"rudder: {message}", file=sys.stderr)
        if hint:
            print(hint, file=sys.stderr)
    return code
