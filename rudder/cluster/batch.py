"""A batch script for Slurm that runs one command line on as many hosts as it has parts."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rudder.cluster.slurm import run_slurm
from rudder.errors import ClusterError, UsageError

_OPTION = re.compile(r"[a-z][a-z-]*(=[^\x00-\x1f]+)?")
_MAIN = "import sys; from rudder.cli.app import main; sys.exit(main())"


@dataclass(frozen=True)
class Submitted:
    """A batch job: its number, its script, and where its output goes."""

    job: int
    script: Path
    log: Path


def batch_script(
    arguments: Sequence[str], hosts: int, options: Sequence[str], data: Path, log: Path
) -> str:
    """The text of the script.

    Args:
        arguments: of ``rudder``, ``--hosts slurm`` among them.
        options: further ones of sbatch, without their dashes: ``time=01:00:00``.
        data: the data directory.
        log: file for the output.

    Raises:
        UsageError: an option that is none.
    """
    for option in options:
        if not _OPTION.fullmatch(option):
            raise UsageError(
                f"--sbatch {option!r} is no option of sbatch; write one without dashes, such as "
                "time=01:00:00 or exclusive"
            )
    given = [
        "job-name=rudder",
        f"nodes={hosts}",
        "ntasks-per-node=1",
        f"chdir={Path.cwd()}",
        f"output={log}",
        *options,
    ]
    command = Path(sys.executable).with_name("rudder")
    start = [str(command)] if command.exists() else [sys.executable, "-I", "-c", _MAIN]
    return "\n".join(
        (
            "#!/bin/sh",
            f"# rudder {shlex.join(arguments)}",
            "# The command runs on the first host and starts one job step on every host.",
            *(f"#SBATCH --{option}" for option in given),
            "",
            f"export RUDDER_HOME={shlex.quote(str(data))}",
            f"exec {shlex.join((*start, *arguments))}",
            "",
        )
    )


def submit(text: str, script: Path, log: Path) -> Submitted:
    """Write a script and give it to sbatch.

    Raises:
        ClusterError: Slurm refuses it; the script stays.
    """
    script.write_text(text)
    said = run_slurm("sbatch", "--parsable", str(script))
    number = said.strip().partition(";")[0]
    if not number.isdecimal():
        raise ClusterError(f"sbatch answered {said!r}, which is no job number")
    return Submitted(int(number), script, Path(str(log).replace("%j", number)))
