"""``--submit`` of the commands that start hosts: the same command as a batch job of Slurm."""

from __future__ import annotations

from collections.abc import Sequence

from rudder.cli.options import command_line
from rudder.cli.output import emit
from rudder.cluster.batch import batch_script, submit
from rudder.errors import UsageError
from rudder.home import Home
from rudder.running import new_run_id

_ENDS_OPTIONS = "--"


def submit_this(
    hosts: str | None, parts: int, options: Sequence[str], home: Home, as_json: bool
) -> None:
    """Submit this command line, and report job, script and log.

    Raises:
        UsageError: hosts of another kind were named, or an option that sbatch cannot have.
        ClusterError: Slurm refuses it.
    """
    if hosts not in (None, "slurm"):
        raise UsageError(f"--submit runs on hosts of Slurm: leave out --hosts {hosts}")
    folder = home.batch
    name = new_run_id()
    log = folder / f"{name}-%j.log"
    arguments = without_submit(command_line())
    text = batch_script(arguments, parts, options, home.root, log)
    done = submit(text, folder / f"{name}.sh", log)
    emit({"job": done.job, "script": done.script, "log": done.log}, as_json=as_json)


def without_submit(arguments: Sequence[str]) -> list[str]:
    """The command line that the batch job runs: on the hosts of its allocation."""
    end = arguments.index(_ENDS_OPTIONS) if _ENDS_OPTIONS in arguments else len(arguments)
    kept: list[str] = []
    words = iter(arguments[:end])
    for word in words:
        if word == "--sbatch":
            next(words, None)
        elif word != "--submit" and not word.startswith("--sbatch="):
            kept.append(word)
    if not any(word == "--hosts" or word.startswith("--hosts=") for word in kept):
        kept += ["--hosts", "slurm"]
    return [*kept, *arguments[end:]]
