"""Starts somebody's own DistDGL script on hosts, with what DGL's launcher would set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudder.cluster.roles import Role
from rudder.cluster.supervisor import Supervisor
from rudder.distdgl.environment import Environment
from rudder.distdgl.hosting import (
    Hosts,
    check_served,
    deliver_partition,
    emulated,
    sent_and_received,
    server_roles,
)
from rudder.distdgl.place import ClusterPlace
from rudder.errors import UsageError
from rudder.partition import Partition
from rudder.versions import check_versions

_RUN = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; "
    "from rudder.distdgl.script import main; main()"
)
"""An interpreter of its own, not a fork: a script may want to set what libraries read when they are
imported."""

PLACEHOLDERS = ("ip_config", "part_config", "graph_name", "num_trainers")


@dataclass(frozen=True)
class Launched:
    """What a launched job leaves: logs per process, counters per host."""

    logs: Path
    host_counters: Sequence[Mapping[str, Any]]


def launch(
    script: Path,
    arguments: Sequence[str],
    partition: Partition,
    run_dir: Path,
    *,
    rate: float = 0.0,
    trainers: int = 1,
    place: ClusterPlace | None = None,
) -> Launched:
    """Run ``script`` as every trainer of a job, beside one DistDGL server per host.

    The script finds DGL's variables in its environment. In its arguments ``{ip_config}``,
    ``{part_config}``, ``{graph_name}`` and ``{num_trainers}`` stand for the job's own values. Its
    output goes to one log per trainer. It runs in the current directory, which other machines must
    have too, and the script in it.

    Args:
        place: where the hosts are; default: emulated on this machine.

    Raises:
        UsageError: no such script, or an argument with an unknown placeholder.
        PartitionError: DistDGL cannot serve a part.
        RoleError: a process failed or did not start in time.
    """
    check_use(script, arguments)
    check_served(partition)
    logs = run_dir / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    script = script.resolve()
    with Hosts(emulated if place is None else place.make)(partition.parts, rate) as cluster:
        cluster.check_file(script)
        deliver_partition(cluster, partition)
        before = cluster.counters()
        environment = Environment.on(cluster, partition.config, trainers, run_dir / "ip_config.txt")
        environment.write_ip_config()
        cluster.deliver(run_dir, [[environment.ip_config.name]] * len(cluster.hosts))
        scripts = [
            Role(
                host=host.index,
                kind="script",
                index=host.index * trainers + local,
                argv=(cluster.python(host.index), "-c", _RUN, str(script), *words),
                env=environment.trainer(host.index, local),
                log=logs / f"script-{host.index * trainers + local}.log",
                cwd=Path.cwd(),
            )
            for host in cluster.hosts
            for words in [_arguments(arguments, environment, partition, host.index)]
            for local in range(trainers)
        ]
        Supervisor(cluster).run([*server_roles(environment, logs), *scripts], ())
        counters = sent_and_received(before, cluster)
    return Launched(logs, counters)


def _arguments(
    given: Sequence[str], environment: Environment, partition: Partition, host: int
) -> list[str]:
    """The script's arguments on a host, placeholders filled in."""
    paths = (environment.place(host, p) for p in (environment.ip_config, environment.config))
    job = (*paths, partition.graph_name, environment.trainers)
    values = dict(zip(PLACEHOLDERS, map(str, job), strict=True))
    return [_fill(argument, values) for argument in given]


def check_use(script: Path, arguments: Sequence[str]) -> None:
    """Refuse, before anything is made or started, what :func:`launch` could not run.

    Raises:
        UsageError: no such script, or an argument with an unknown placeholder.
        VersionError: library versions that do not work together.
    """
    check_versions()
    if not script.is_file():
        raise UsageError(f"no such script: {script.resolve()}")
    for argument in arguments:
        _fill(argument, dict.fromkeys(PLACEHOLDERS, ""))


def _fill(argument: str, values: Mapping[str, str]) -> str:
    try:
        return argument.format_map(values)
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        known = ", ".join(f"{{{name}}}" for name in values)
        raise UsageError(
            f"argument {argument!r} has a placeholder that is none of {known} ({error}); "
            "write {{ and }} for braces"
        ) from error
