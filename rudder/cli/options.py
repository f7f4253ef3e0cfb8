"""Option types that commands share: annotate a parameter with one and give it a default.

>>> def command(graph: str, home: HomeDir = None, as_json: AsJson = False) -> None: ...
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Optional

import typer

from rudder import plugins
from rudder.cli.output import log_handler

_loaded: dict[str, plugins.PluginFile] = {}
_line: list[str] = []


def command_line() -> list[str]:
    """The arguments of ``rudder`` as they were given."""
    return list(_line)


def plugin_files() -> tuple[plugins.PluginFile, ...]:
    """The plug-in files that ``--plugin`` loaded, for :class:`rudder.engine.RunOptions`."""
    return tuple(_loaded.values())


def start(arguments: Sequence[str] = ()) -> None:
    """Begin a command line: no plug-in file loaded, warnings on stderr."""
    _loaded.clear()
    _line[:] = arguments
    configure_logging()


def configure_logging(level: int = logging.WARNING) -> None:
    """Send the log of Rudder and of plug-ins to stderr; other libraries speak up from WARNING."""
    logging.basicConfig(handlers=[log_handler()], format="%(message)s", force=True)
    for package in plugins.packages():
        logging.getLogger(package).setLevel(level)


def _load_plugins(paths: list[Path] | None) -> list[Path] | None:
    for path in paths or ():
        loaded = plugins.load_file(path)
        _loaded[loaded.sha256] = loaded
    return paths


def _verbose(times: int) -> int:
    if times:
        configure_logging(logging.DEBUG if times > 1 else logging.INFO)
    return times


def _quiet(quiet: bool) -> bool:
    if quiet:
        configure_logging(logging.ERROR)
    return quiet


def _export_home(path: Path | None) -> Path | None:
    """Graphs that are downloaded while a dataset is built go to the same directory."""
    if path is not None:
        os.environ["RUDDER_HOME"] = str(path.expanduser().resolve())
    return path


# Optional, not `X | None`: these are values, built when the module is imported.
HomeDir = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--home",
        callback=_export_home,
        help="data directory (graphs, partitions, runs, mlflow.db); default RUDDER_HOME, "
        "else ./rudder-data",
        show_default=False,
    ),
]
Plugins = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        callback=_load_plugins,
        is_eager=True,
        help="load this plug-in file first; may be given several times",
        show_default=False,
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="print JSON on stdout and nothing else", show_default=False)
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", callback=_quiet, help="no progress bar, only errors",
                 show_default=False),
]  # fmt: skip
Verbose = Annotated[
    int,
    typer.Option("--verbose", "-v", count=True, callback=_verbose, help="say more; twice: all",
                 show_default=False),
]  # fmt: skip
Hosts = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--hosts",
        metavar="FILE|slurm|env",
        help="real hosts: over ssh, as a hosts file names them; those of this Slurm allocation; "
        "those on which torchrun or the like has started this command. "
        "Default: emulated hosts on this machine",
        show_default=False,
    ),
]
SshConfig = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--ssh-config",
        metavar="FILE",
        help="configuration file for ssh, in place of yours",
        show_default=False,
    ),
]
AllowPublic = Annotated[
    bool,
    typer.Option(
        "--allow-public",
        help="hosts may have public addresses: whoever reaches their ports can run code as you",
        show_default=False,
    ),
]
Submit = Annotated[
    bool,
    typer.Option(
        "--submit",
        help="write a batch script for Slurm that runs this command, and submit it",
        show_default=False,
    ),
]
Sbatch = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--sbatch",
        metavar="NAME=VALUE",
        help="further option of sbatch for --submit, such as time=01:00:00; may be given several "
        "times",
        show_default=False,
    ),
]
