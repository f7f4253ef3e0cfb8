"""Hosts of a Slurm allocation: a job step on each, with one agent that starts the roles there."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rudder.cluster.hosts import Host
from rudder.cluster.hostsfile import HostLine, check_private, resolve_address
from rudder.cluster.preflight import Facts
from rudder.cluster.remote import Reach, RemoteCluster
from rudder.cluster.shipped import BOOTSTRAP
from rudder.cluster.streams import CommandStream, Stream
from rudder.errors import ClusterError, UsageError

_SECONDS_FOR_A_COMMAND = 30.0
_STEP = (
    "--nodes=1",
    "--ntasks=1",
    "--overlap",  # the batch script holds the same cores
    "--cpu-bind=none",  # one task would be bound to one core, and all roles with it
    "--unbuffered",
    "--kill-on-bad-exit=1",
)
_OF_OTHER_STEPS = ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_DISTRIBUTION")
"""Variables of the allocation that srun would take for options of each step."""


class SlurmCluster(RemoteCluster):
    """The hosts of the allocation that this process runs in.

    They must share the data directory, as Slurm's hosts do; nothing is copied to them.

    Args:
        nodes: their names, in order of the parts (:func:`allocated_nodes`).
        data: the data directory, here and there.
        allow_public: hosts may have addresses of the Internet.

    Raises:
        HostsFileError: a name without an IPv4 address, or a public address that is not allowed.
    """

    kind = "slurm"

    def __init__(self, nodes: Sequence[str], data: Path, *, allow_public: bool = False) -> None:
        reaches = []
        for index, node in enumerate(nodes):
            line = HostLine(f"Slurm's host {node}", node)
            address = resolve_address(line)
            check_private(address, line.where, allow_public)
            step = ("srun", *_STEP, f"--nodelist={node}")
            reach = Reach(
                Host(index, node, address),
                (*step, sys.executable, "-I", "-u", "-c", BOOTSTRAP),
                sys.executable,
                data,
                shlex.join((*step, "hostname")),
            )
            reaches.append(reach)
        super().__init__(reaches, data)

    def no_way(self, facts: Facts) -> str | None:
        return "nothing is copied to Slurm's hosts"

    def copy(self, host: int, folder: Path, names: Sequence[str], back: bool) -> None:
        raise ClusterError(f"{self.hosts[host]} does not share {folder}; put it on a shared disk")

    def _open(self, reach: Reach) -> Stream:
        env = {key: value for key, value in os.environ.items() if key not in _OF_OTHER_STEPS}
        return CommandStream(reach.command, env)


def allocated_nodes(environ: Mapping[str, str] | None = None) -> list[str]:
    """Names of the hosts of this allocation.

    Raises:
        UsageError: this process runs in none.
        ClusterError: Slurm's command does not work.
    """
    environ = os.environ if environ is None else environ
    given = environ.get("SLURM_JOB_NODELIST")
    if given is None:
        raise UsageError(
            "--hosts slurm: this is no Slurm allocation (there is no SLURM_JOB_NODELIST); start "
            "it by salloc -N HOSTS, or let --submit write and submit a batch script"
        )
    return run_slurm("scontrol", "show", "hostnames", given).split()


def run_slurm(*command: str) -> str:
    """What one of Slurm's commands prints.

    Raises:
        ClusterError: it is not installed, fails, or takes too long.
    """
    if shutil.which(command[0]) is None:
        raise ClusterError(f"there is no {command[0]} here; is Slurm's client installed?")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_SECONDS_FOR_A_COMMAND
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{shlex.join(command)} takes over {error.timeout:.0f} s") from error
    if done.returncode != 0:
        raise ClusterError(f"{shlex.join(command)} failed: {done.stderr.strip()}")
    return done.stdout
