"""``rudder calibrate-time`` and ``rudder estimate``: the model of time, and scale on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, List, Optional  # noqa: UP035

import typer

from rudder.cli.options import AsJson, HomeDir, Quiet, Verbose
from rudder.cli.output import emit, progress, say
from rudder.cli.train import Controller
from rudder.engine import Progress, RunOptions
from rudder.errors import MissingPathError, PartitionError
from rudder.home import Home
from rudder.partition import Partition
from rudder.replay.engine import ReplayEngine
from rudder.result import RunResult
from rudder.running import new_run_id
from rudder.spec import Spec
from rudder.timing.fitting import calibrate
from rudder.timing.machine import BURST_BYTES, Machine
from rudder.timing.scale import Shape, Target, check_comparable, estimate
from rudder.timing.traffic import Traffic
from rudder.trace import Trace
from rudder.trace.find import find_trace


def calibrate_time(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="directory of a real run")],
    trace: Annotated[
        str, typer.Option("--trace", metavar="TRACE", help="trace over the same partition")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="JSON file of the calibration")
    ] = Path("calibration.json"),
    cores: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            min=0,
            help="cores that all hosts shared; 0 = every trainer had its own; default: those of "
            "this machine",
            show_default=False,
        ),
    ] = None,
    burst: Annotated[
        float,
        typer.Option(min=0, help="bytes that pass an idle link at once; default: emulated hosts'"),
    ] = BURST_BYTES,
    home: HomeDir = None,
    as_json: AsJson = False,
    verbose: Verbose = 0,
) -> None:
    """Fit the model of time to one real run: at depth 0, without buffer, on a quiet machine.

    Its rate must change, so that CPU and link can be told apart, and its batch size should:
    rudder train debian -c none --prefetch-depth 0 --epochs 9 --batch-size-at 3=50
    --batch-size-at 7=200 --rate-at 5=100
    """
    folder, out = run.expanduser().resolve(), out.expanduser().resolve()
    if not folder.is_dir():
        raise MissingPathError(f"no run at {folder}; 'rudder train' tells where it keeps one")
    opened = Trace.open(find_trace(trace, Home.resolve(home)))
    real = RunResult.load(folder)
    _check_same_partition(opened, real)
    machine = calibrate(real, Traffic.of(opened), cores=cores, burst_bytes=burst)
    machine.save(out)
    parameters = {name: value for name, value in vars(machine).items() if name != "source"}
    emit({"run": machine.source["run_id"], **parameters}, as_json=as_json)
    say(f"calibration: {out}; use it with 'rudder replay --time {out}' and 'rudder estimate'")


def _check_same_partition(trace: Trace, run: RunResult) -> None:
    """Raises TraceError: the trace is of another graph or partition than the run."""
    try:
        partition = Partition.load(Path(run.details["partition"]))
    except (KeyError, PartitionError):  # gone meanwhile: the number of ranks is compared still
        return
    trace.check_matches(partition.graph_digest, partition.digest)


def estimate_scale(
    traces: Annotated[
        List[str],  # noqa: UP006
        typer.Argument(metavar="TRACE…", help="of one graph at different numbers of parts"),
    ],
    time: Annotated[Path, typer.Option("--time", metavar="FILE", help="calibration")],
    hosts: Annotated[int, typer.Option(min=2, help="hosts of the machine")] = 448,
    trainers: Annotated[int, typer.Option(min=1, help="trainers per host")] = 4,
    rate: Annotated[
        float, typer.Option(min=0, help="Mbit/s each way at each host; 0 = not counted")
    ] = 100_000.0,
    latency: Annotated[float, typer.Option(min=0, help="seconds of one message")] = 5e-6,
    train_nodes: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=1, help="training nodes of the graph; default: the traces'", show_default=False
        ),
    ] = None,
    controller: Controller = "always",
    policy: Annotated[str, typer.Option(help="of the replays")] = "score",
    buffer: Annotated[float, typer.Option(min=0, max=1, help="share of the halo")] = 0.25,
    prefetch_depth: Annotated[int, typer.Option(min=0, help="pulls run so far ahead")] = 2,
    home: HomeDir = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Estimate seconds at a size that was never run, from traces at fewer parts. On paper only.

    Remote share, fetched share, halo and balance are extrapolated over the parts; the error of the
    same method at the most parts, predicted from the others, is told beside it.
    """
    place, machine = Home.resolve(home), Machine.load(time.expanduser().resolve())
    opened = [Trace.open(find_trace(name, place)) for name in traces]
    check_comparable(opened)
    with progress(quiet=quiet or as_json) as report:
        shapes = [_shape(trace, place, controller, policy, buffer, report) for trace in opened]
    first = opened[0]
    manifest, scenario = first.manifest, first.manifest.scenario
    size = first.facts[0].minibatches[0]
    target = Target(
        hosts=hosts,
        trainers=trainers,
        rate=rate,
        latency_s=latency,
        train_nodes=train_nodes or size * scenario.batch_size * manifest.ranks,
        batch_size=scenario.batch_size,
        row_bytes=manifest.feature_bytes,
        depth=prefetch_depth,
    )
    found = estimate(machine, shapes, target)
    if as_json:
        emit(found, as_json=True)
        return
    emit(
        found["measured"] + [{**found["extrapolated"], "source": "extrapolated"}],
        as_json=False,
        title="measured from traces, and extrapolated (last line)",
    )
    keys = ("sample_s", "fetch_s", "compute_s", "minibatches", "minibatch_seconds", "epoch_seconds")
    emit(
        {f"estimate of {key}": found[key] for key in keys},
        as_json=False,
        title=f"\nESTIMATE for {hosts} hosts x {trainers} trainers",
    )
    if found["check"] is None:
        say("no check: give traces at three numbers of parts to see what the method errs by")
    else:
        check = found["check"]
        emit(
            check["error"],
            as_json=False,
            title=f"\nerror at {check['parts']} parts, predicted from {check['from_parts']}",
        )
    emit([{"assumptions": text} for text in found["assumptions"]], as_json=False)


def _shape(
    trace: Trace, place: Home, controller: str, policy: str, buffer: float, report: Progress
) -> Shape:
    engine = ReplayEngine(trace, record_decisions=False)
    options = RunOptions(place, place.runs / new_run_id(), (), report)
    scenario = engine.scenario.change(policy=policy, buffer=buffer)
    summary = engine.run(scenario, Spec.parse(controller), options).summary
    return Shape.of(trace, summary["fetched"] / max(summary["remote_sampled"], 1))
