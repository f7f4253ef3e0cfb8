"""``rudder trace``: record what a run samples, for replays."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, Quiet, Verbose, plugin_files
from rudder.cli.output import emit, progress, say
from rudder.cli.scenario_options import scenario_options
from rudder.engine import Progress
from rudder.errors import UsageError
from rudder.home import Home
from rudder.partition import ensure_partition
from rudder.registries import DATASETS, PARTITIONERS, POLICIES
from rudder.running import new_run_id, run_tracked
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.trace import Trace, check_free, trace_folder


@scenario_options()
def trace(
    scenario: dict[str, Any],
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="where the trace goes; '.trace' is appended if it is not there; default: "
            "traces/ of the data directory",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        Literal["distdgl", "sampler"],
        typer.Option(help="a real run on emulated hosts, or sampling in this process, unclocked"),
    ] = "distdgl",
    controller: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--controller",
            "-c",
            help="what steers the recorded run (distdgl only); default: none",
            show_default=False,
        ),
    ] = None,
    home: HomeDir = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Record an access trace on GRAPH: what each trainer's minibatches sample.

    Which controller or policy ran while recording does not matter to a replay: it may change them,
    the buffer, the rate and the prefetch depth, and nothing else.
    """
    asked, place = Scenario.make(**scenario), Home.resolve(home)
    spec = Spec.parse(controller or "none")
    if engine == "sampler" and controller is not None:
        raise UsageError(
            "--engine sampler runs no controller: leave --controller out, and give it to 'rudder "
            "replay' instead"
        )
    name = f"{Spec.parse(asked.graph).name}-{new_run_id()}"
    folder = trace_folder(out or place.traces / name)
    check_free(folder)
    with progress(quiet=quiet or as_json) as report:
        if engine == "sampler":
            _sample(asked, place, folder, report)
        else:
            run_tracked(asked, spec, place, None, report, plugins=plugin_files(), record=folder)
    emit(describe(Trace.open(folder)), as_json=as_json)
    say(f"replay it: rudder replay {folder}")


def _sample(scenario: Scenario, home: Home, folder: Path, report: Progress) -> None:
    from rudder.distdgl.engine import PARTITION_SEED
    from rudder.trace.sampling import record_sampled

    POLICIES.build(scenario.policy)
    DATASETS.check(scenario.graph)
    PARTITIONERS.check(scenario.partition_method)
    partition = ensure_partition(
        scenario.graph, scenario.parts, scenario.partition_method, PARTITION_SEED,
        home.partitions, report,
    )  # fmt: skip
    record_sampled(scenario, partition, folder, report)


def describe(trace: Trace) -> dict[str, Any]:
    """What a command reports of a trace."""
    scenario = trace.manifest.scenario
    return {
        "trace": trace.folder,
        "recorder": trace.manifest.recorder,
        "graph": scenario.graph,
        "parts": scenario.parts,
        "trainers": scenario.trainers,
        "epochs": scenario.epochs,
        "minibatches": [trace.length(rank) for rank in trace.ranks],
        "complete": trace.complete,
        "seed_order": scenario.seed_order,
        "graph_digest": trace.manifest.graph_digest,
        "partition_digest": trace.manifest.partition_digest,
        "bytes": sum(f.stat().st_size for f in trace.folder.rglob("*") if f.is_file()),
    }
