"""``rudder train``: one real DistDGL run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

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
    plugin_files,
)
from rudder.cli.output import emit, progress, say
from rudder.cli.scenario_options import scenario_options
from rudder.cli.submit import submit_this
from rudder.home import Home
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec

TrackingUri = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--tracking-uri",
        help="MLflow server or store; default: mlflow.db in the data directory",
        show_default=False,
    ),
]
Controller = Annotated[
    str, typer.Option("--controller", "-c", help="controller spec, NAME:key=value,…")
]


@scenario_options()
def train(
    scenario: dict[str, Any],
    controller: Controller = "always",
    verify: Annotated[
        bool,
        typer.Option("--verify", help="compare every served feature row with the stored one"),
    ] = False,
    record: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--record",
            metavar="DIR",
            help="record an access trace there too; '.trace' is appended if it is not there",
            show_default=False,
        ),
    ] = None,
    track: Annotated[bool, typer.Option(help="log the run to MLflow")] = True,
    tracking_uri: TrackingUri = None,
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
    """Train a GNN on GRAPH with real DistDGL, steered by a controller.

    The hosts are emulated on this machine, or those of --hosts.
    Plain DistDGL is --controller none --prefetch-depth 0.
    """
    from rudder.distdgl.engine import DistDGLEngine
    from rudder.distdgl.place import ClusterPlace
    from rudder.running import run_tracked
    from rudder.trace import check_free, trace_folder
    from rudder.tracking import Tracker

    place = Home.resolve(home)
    if submit:
        submit_this(hosts, Scenario.make(**scenario).parts, sbatch or (), place, as_json)
        return
    cluster = ClusterPlace(hosts, place.root, ssh_config, allow_public)
    cluster.join()
    asked, spec = Scenario.make(**cluster.fill_in(scenario)), Spec.parse(controller)
    folder = trace_folder(record) if record is not None else None
    if folder is not None:
        check_free(folder)
    tracker = Tracker(place, tracking_uri) if track else None
    with progress(quiet=quiet or as_json) as report:
        result = run_tracked(
            asked, spec, place, tracker, report, engine=DistDGLEngine(cluster),
            plugins=plugin_files(), verify=verify, record=folder,
        )  # fmt: skip
    emit(describe(result), as_json=as_json)
    say(f"run directory: {result.run_dir}")
    if folder is not None:
        say(f"access trace: {folder}")


def describe(result: RunResult) -> dict[str, Any]:
    """What a command reports of a run: what was run, then its summary."""
    scenario = result.scenario
    return {
        "graph": scenario.graph,
        "controller": str(result.controller),
        "policy": scenario.policy,
        "buffer": scenario.buffer,
        "prefetch_depth": scenario.prefetch_depth,
        "rate": scenario.rate,
        "parts": scenario.parts,
        **result.summary,
    }
