"""What a job is made of: processes with a place, a kind and a command."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rudder.errors import UsageError

_ARGUMENT_LIMIT = 128 * 1024 - 1  # Linux's limit on one argument of exec

_ENTRY = "rudder.cluster.entry"
_CALL = "import sys; from {module} import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True)
class Role:
    """One process of a job, run either as a command (``argv``) or as a function (``entry``).

    Attributes:
        host: index of its host.
        kind: "trainer", "server", "script", …; free text for messages and deadlines.
        index: number among the roles of its kind.
        log: file that receives its stdout and stderr (reports left out).
        argv: command and arguments; use absolute paths.
        entry: ``"module:function"``, called with ``kwargs``. Its return value is ignored.
        kwargs: JSON-able keyword arguments of the entry.
        env: variables laid over the environment of the launching process.
        service: True for a role that serves the others and ends with the job.
        cwd: working directory, absolute.
    """

    host: int
    kind: str
    index: int
    log: Path
    argv: tuple[str, ...] = ()
    entry: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    service: bool = False
    cwd: Path = Path("/")

    def __post_init__(self) -> None:
        if bool(self.argv) == bool(self.entry):
            raise UsageError(f"role {self.name}: give either argv or entry")
        if self.entry is not None and not all(self.entry.partition(":")):
            raise UsageError(f"role {self.name}: entry {self.entry!r} is not 'module:function'")
        if self.argv and self.kwargs:
            raise UsageError(f"role {self.name}: kwargs belong to an entry, not to argv")
        if not self.cwd.is_absolute():
            raise UsageError(f"role {self.name}: cwd {self.cwd} is not absolute")
        try:
            json.dumps(dict(self.kwargs))
        except (TypeError, ValueError) as error:
            raise UsageError(f"role {self.name}: kwargs are not JSON: {error}") from error

    @property
    def name(self) -> str:
        """As in "trainer 2 on host1"."""
        return f"{self.kind} {self.index} on host{self.host}"

    def command(self, python: str | None = None) -> tuple[str, ...]:
        """What to execute: ``argv``, or an interpreter that calls the entry.

        Args:
            python: an interpreter of another host, with an import path of its own; None = this
                process's, with this one's path.

        Raises:
            UsageError: the kwargs are too large for a command line.
        """
        if self.entry is None:
            return self.argv
        arguments = json.dumps({"entry": self.entry, "kwargs": dict(self.kwargs)})
        if len(arguments) > _ARGUMENT_LIMIT:
            raise UsageError(
                f"role {self.name}: {len(arguments)} bytes of kwargs are too many; put them in a "
                "file and pass its path"
            )
        if python is not None:
            return (python, "-I", "-u", "-c", _CALL.format(module=_ENTRY), arguments)
        return python_command(_ENTRY, arguments)


def import_path() -> list[str]:
    """This interpreter's import path without the working directory.

    Children import from the same places as their launcher, and never from wherever it was started:
    a folder there could stand in for a library of the same name.
    """
    return [entry for entry in sys.path if entry]


def python_command(module: str, *arguments: str) -> tuple[str, ...]:
    """A command that calls ``module.main(arguments)`` in an isolated interpreter."""
    code = "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); " + _CALL.format(
        module=module
    )
    return (sys.executable, "-I", "-u", "-c", code, json.dumps(import_path()), *arguments)


def names(roles: Sequence[Role]) -> str:
    """The names of some roles, for a message."""
    return ", ".join(role.name for role in roles)
