"""``rudder train``: one real DistDGL run."""

from __future__ import annotations

from collections.abc import Mapping
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
from rudder.errors import UsageError
from rudder.home import Home
from rudder.plugins import PluginFile, load_files
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


@scenario_options(needed=False)
def train(
    scenario: dict[str, Any],
    controller: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--controller",
            "-c",
            help="controller spec, NAME:key=value,…; default: always",
            show_default=False,
        ),
    ] = None,
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
    checkpoint: Annotated[
        bool, typer.Option(help="keep a checkpoint at the end of every epoch")
    ] = True,
    resume: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--resume",
            metavar="RUN",
            help="go on with a run that ended too early, from its last checkpoint: its id or "
            "directory; it says itself what is run",
            show_default=False,
        ),
    ] = None,
    restarts: Annotated[
        int,
        typer.Option(
            min=0,
            help="after a process, a host or a link was lost, go on from the last checkpoint, so "
            "often at most",
        ),
    ] = 0,
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
    from rudder.distdgl.attempts import unfinished_job
    from rudder.distdgl.engine import DistDGLEngine
    from rudder.distdgl.place import ClusterPlace
    from rudder.running import InMLflow, run_tracked
    from rudder.trace import check_free, trace_folder
    from rudder.tracking import Tracker

    place = Home.resolve(home)
    plugins: tuple[PluginFile, ...] = plugin_files()
    run_dir = None if resume is None else _earlier_run(resume, place)
    if run_dir is None:
        if "graph" not in scenario:
            raise UsageError("say what to train on: rudder train GRAPH (see: rudder datasets)")
        asked, spec = Scenario.make(**scenario), Spec.parse(controller or "always")
    else:
        settled = {"controller": controller, "verify": verify, "record": record, "plugin": plugin}
        _refuse_changes({**scenario, **settled})
        if (run_dir / "run.json").exists():
            _tell(RunResult.load(run_dir), as_json)
            say("this run has finished: there is nothing to go on with")
            return
        job = unfinished_job(run_dir, all_here=hosts is None)
        asked, spec, plugins, verify = job.scenario, job.controller, job.plugins, job.verify
    if submit:
        submit_this(hosts, asked.parts, sbatch or (), place, as_json)
        return
    cluster = ClusterPlace(hosts, place.root, ssh_config, allow_public)
    cluster.join()
    if run_dir is None:
        asked = Scenario.make(**cluster.fill_in(scenario))
    else:
        load_files(plugins)
    folder = trace_folder(record) if record is not None else None
    if folder is not None:
        check_free(folder)
    earlier = None if run_dir is None else InMLflow.load(run_dir)
    tracker = None
    if track and (run_dir is None or earlier is not None):
        tracker = Tracker(place, tracking_uri or (earlier.uri if earlier is not None else None))
    with progress(quiet=quiet or as_json) as report:
        result = run_tracked(
            asked, spec, place, tracker, report, engine=DistDGLEngine(cluster),
            plugins=plugins, verify=verify, record=folder,
            checkpoint=checkpoint, restarts=restarts, resume=run_dir,
        )  # fmt: skip
    _tell(result, as_json)
    if folder is not None:
        say(f"access trace: {folder}")


def _earlier_run(named: str, home: Home) -> Path:
    """The directory of a run of this data directory, by its id or path.

    Raises:
        UsageError: it lies elsewhere.
    """
    path = home.runs / named if Path(named).name == named else Path(named).expanduser().resolve()
    if path.parent != home.runs:
        raise UsageError(
            f"{path} is no run of the data directory {home.root}; name that of the run: --home"
        )
    return path


def _refuse_changes(given: Mapping[str, Any]) -> None:
    """Refuse options beside --resume that a run has settled when it began.

    Raises:
        UsageError: which ones.
    """
    names = [name.replace("_", "-") for name, value in given.items() if value]
    if "graph" in names:
        names[names.index("graph")] = "GRAPH"
    if names:
        told = ", ".join(name if name == "GRAPH" else f"--{name}" for name in names)
        raise UsageError(f"--resume goes on with what the run began with: leave out {told}")


def _tell(result: RunResult, as_json: bool) -> None:
    emit(describe(result), as_json=as_json)
    say(f"run directory: {result.run_dir}")


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
