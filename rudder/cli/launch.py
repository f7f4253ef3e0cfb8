"""``rudder launch``: somebody's own DistDGL script on hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from rudder.cli.options import (
    AllowPublic,
    AsJson,
    HomeDir,
    Hosts,
    Plugins,
    Quiet,
    Sbatch,
    SshConfig,
    Submit,
    Verbose,
)
from rudder.cli.output import emit, progress
from rudder.cli.submit import submit_this
from rudder.home import Home
from rudder.scenario import Scenario


def launch(
    graph: Annotated[str, typer.Argument(help="dataset spec, NAME:key=value,…")],
    script: Annotated[Path, typer.Argument(help="DistDGL training script", metavar="SCRIPT.py")],
    arguments: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[ARGS]…",
            help="passed on; {ip_config}, {part_config}, {graph_name} and {num_trainers} are "
            "filled in",
        ),
    ] = None,
    parts: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="partitions = hosts; default 4, or as many as --hosts names", show_default=False
        ),
    ] = None,
    trainers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="trainers per host; default 1, or as --hosts says", show_default=False),
    ] = None,
    partition_method: Annotated[str, typer.Option(help="partitioner spec")] = "metis",
    rate: Annotated[float, typer.Option(help="Mbit/s each way at each host; 0 = unshaped")] = 0.0,
    hosts: Hosts = None,
    ssh_config: SshConfig = None,
    allow_public: AllowPublic = False,
    submit: Submit = False,
    sbatch: Sbatch = None,
    home: HomeDir = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run SCRIPT.py as every trainer of a DistDGL job on GRAPH, with DGL's variables set.

    Options for the script come after --, as in: rudder launch debian train.py -- --epochs 3
    """
    from rudder.distdgl.engine import PARTITION_SEED
    from rudder.distdgl.launch import check_use
    from rudder.distdgl.launch import launch as start
    from rudder.distdgl.place import ClusterPlace
    from rudder.partition import ensure_partition
    from rudder.running import new_run_id

    place = Home.resolve(home)
    given = {"graph": graph, "parts": parts, "trainers": trainers, "rate": rate}
    asked = {name: value for name, value in given.items() if value is not None}
    if submit:
        check_use(script, arguments or [])
        submit_this(hosts, Scenario.make(**asked).parts, sbatch or (), place, as_json)
        return
    cluster = ClusterPlace(hosts, place.root, ssh_config, allow_public)
    cluster.join()
    checked = Scenario.make(partition_method=partition_method, **cluster.fill_in(asked))
    cluster.check(checked)
    check_use(script, arguments or [])  # partitioning may take long
    with progress(quiet=quiet or as_json) as report:
        partition = ensure_partition(
            checked.graph, checked.parts, partition_method, PARTITION_SEED, place.partitions, report
        )
    launched = start(
        script, arguments or [], partition, place.runs / new_run_id(), rate=rate,
        trainers=checked.trainers, place=cluster,
    )  # fmt: skip
    for log in sorted(launched.logs.glob("script-*.log")) if not as_json else ():
        typer.echo(f"--- {log}")
        typer.echo(log.read_text(errors="replace"), nl=False)
    sent = sum(counter["tx_bytes"] for counter in launched.host_counters)
    emit(
        {"logs": launched.logs, "hosts": checked.parts, "bytes_sent": sent,
         "host_counters": list(launched.host_counters)},
        as_json=as_json, columns=("logs", "hosts", "bytes_sent"),
    )  # fmt: skip
