"""The engine ``distdgl``: real DistDGL training on hosts, from the launcher's side.

This module imports neither torch nor DGL: the processes that it starts do.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rudder.buffer import resolve_capacity
from rudder.cluster.hosts import Cluster, check_rate
from rudder.cluster.roles import Role
from rudder.cluster.supervisor import Supervisor
from rudder.distdgl import checkpoint
from rudder.distdgl.attempts import (
    Gathering,
    alone,
    deliver_checkpoint,
    later_starts,
    logs_of_start,
    note_start,
    nothing_to_go_on_from,
    worth_another,
)
from rudder.distdgl.environment import Environment
from rudder.distdgl.hosting import (
    DEADLINES,
    SILENCE_S,
    Hosts,
    check_served,
    deliver_partition,
    sent_and_received,
    server_roles,
)
from rudder.distdgl.job import Job
from rudder.distdgl.place import ClusterPlace
from rudder.distdgl.trouble import trouble_of_links
from rudder.distdgl.watching import Watch
from rudder.engine import Engine, RunOptions
from rudder.errors import (
    CheckpointError,
    ClusterError,
    ResultError,
    RudderError,
    ScenarioError,
    UsageError,
)
from rudder.partition import Partition, ensure_partition
from rudder.registries import DATASETS, PARTITIONERS
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.steering import (
    Tally,
    build_controller,
    check_for_training,
    read_decisions,
    resolve,
    serve,
)
from rudder.summary import summarise
from rudder.trace import Manifest, check_free, start_partition_trace
from rudder.versions import check_versions

_log = logging.getLogger(__name__)

PARTITION_SEED = 0
"""All runs share one partition, so that a seed varies training and not the cut."""


class DistDGLEngine(Engine):
    """Partitions, starts hosts, servers and trainers, supervises them, gathers the result.

    Args:
        place: where the hosts are; default: emulated on this machine.
    """

    name = "distdgl"

    def __init__(self, place: ClusterPlace | None = None) -> None:
        self._place = ClusterPlace() if place is None else place
        self._hosts = Hosts(self._place.make)

    def __enter__(self) -> DistDGLEngine:
        self._hosts.keep = True
        return self

    def close(self) -> None:
        self._hosts.keep = False
        self._hosts.close()

    def check(self, scenario: Scenario, controller: Spec) -> tuple[Scenario, Spec]:
        check_versions()
        scenario, controller = super().check(scenario, controller)
        check_for_training(controller, build_controller(controller).tags)
        DATASETS.check(scenario.graph)
        PARTITIONERS.check(scenario.partition_method)
        for rate in (scenario.rate, *(later for _, later in scenario.rate_at)):
            check_rate(rate)
        self._place.check(scenario)
        return scenario, controller

    def run(self, scenario: Scenario, controller: Spec, options: RunOptions) -> RunResult:
        scenario, controller = self.check(scenario, controller)
        self.check_options(options)
        run_dir = options.run_dir.resolve()
        with alone(run_dir):
            after = "it was resumed" if options.resume else None
            for left in reversed(range(options.restarts + 1)):
                try:
                    return self._attempt(scenario, controller, options, run_dir, after)
                except RudderError as error:
                    if not left or not worth_another(error):
                        raise
                    after = str(error).partition("\n")[0]
                    _log.warning("%s It is started again; %d starts are left.", after, left - 1)
        raise UsageError(f"restarts must be 0 or more, found {options.restarts}")

    def check_options(self, options: RunOptions) -> None:
        """Refuse options that do not go together.

        Raises:
            UsageError, TraceError: what, and what to do.
        """
        if options.record is not None:
            if options.resume or options.restarts:
                raise UsageError(
                    "an access trace is recorded in one go: leave out --record, or --restarts and "
                    "--resume"
                )
            check_free(options.record)
        if options.restarts and not options.checkpoint:
            raise UsageError("--restarts goes on from checkpoints: leave out --no-checkpoint")
        if options.restarts:
            self._place.check_restarts()

    def _attempt(
        self,
        scenario: Scenario,
        controller: Spec,
        options: RunOptions,
        run_dir: Path,
        after: str | None,
    ) -> RunResult:
        """One start of the run: the first, or one ``after`` something."""
        folder, ranks = run_dir / checkpoint.FOLDER, scenario.parts * scenario.trainers
        done = None if after is None else checkpoint.last_complete(folder, ranks)
        rate = scenario.rate_of(0 if done is None else done + 1)
        # Hosts first: their imports go on while the graph is read.
        with self._hosts(scenario.parts, rate) as cluster:
            gathering = Gathering(folder, ranks, cluster)
            if after is not None:
                gathering.close()
                done = checkpoint.last_complete(folder, ranks)
                if options.resume and done is None:
                    raise CheckpointError(nothing_to_go_on_from(run_dir))
                checkpoint.clear(folder, done, range(ranks))
                note_start(run_dir, after, done)
            partition = ensure_partition(
                scenario.graph, scenario.parts, scenario.partition_method, PARTITION_SEED,
                options.home.partitions, options.progress,
            )  # fmt: skip
            check_served(partition)
            check_capacity(scenario, partition)
            check_training_nodes(scenario, partition)
            log = run_dir / "logs" / "controller.log"
            deliver_partition(cluster, partition)
            served = serve(controller, options.plugins, log, options.progress)
            with served if cluster.with_launcher else nullcontext() as service:
                job = Job(
                    scenario, controller, partition.folder, run_dir, options.plugins,
                    options.verify, options.record, None if service is None else service.socket,
                    options.checkpoint and options.record is None, done,
                )  # fmt: skip
                if not cluster.with_launcher:
                    job = with_own_plugins(job)
                job.save()
                if job.record is not None:
                    manifest = Manifest.of(scenario, partition, "distdgl")
                    start_partition_trace(job.record, manifest, partition)
                watch = Watch(scenario, options, cluster.shape, gathering)
                counters = _train(job, partition, cluster, watch)
        events = None if service is None else service.events
        result = gather(job, counters, events, watch)
        checkpoint.remove(folder)  # nobody goes on from the end
        return result


def _train(job: Job, partition: Partition, cluster: Cluster, watch: Watch) -> list[dict[str, Any]]:
    """Run servers and trainers to their end; the bytes that each host moved."""
    scenario, logs = job.scenario, logs_of_start(job.run_dir)
    logs.mkdir(parents=True, exist_ok=True)
    environment = Environment.on(
        cluster, partition.config, scenario.trainers, job.run_dir / "ip_config.txt"
    )
    environment.write_ip_config()
    jobs = _deliver_job(job, cluster, environment.ip_config)
    deliver_checkpoint(job, cluster)
    trainers = [
        Role(
            host=host.index,
            kind="trainer",
            index=host.index * scenario.trainers + local,
            entry="rudder.distdgl.trainer:train",
            kwargs={"job": str(jobs[host.index])},
            env=environment.trainer(host.index, local),
            log=logs / f"trainer-{host.index * scenario.trainers + local}.log",
        )
        for host in cluster.hosts
        for local in range(scenario.trainers)
    ]
    before = cluster.counters()
    try:
        Supervisor(cluster).run(
            [*server_roles(environment, logs), *trainers],
            DEADLINES,
            silence=silence_s(job),
            on_report=watch.report,
        )
    except ClusterError as error:
        watch.gathering.close()
        raise watch.cause_of(error) from error
    counters = sent_and_received(before, cluster)
    watch.gathering.close()
    for folder in (job.rank_dir, job.record):
        if folder is not None:
            cluster.collect(folder)
    return counters


def _deliver_job(job: Job, cluster: Cluster, ip_config: Path) -> list[Path]:
    """Have what the trainers read on their hosts; where each host has the job's file."""
    run_dir, files, places = job.run_dir, [], []
    for host in cluster.hosts:
        theirs, path = job.at(partial(cluster.place, host.index)), job.path
        if theirs != job:
            path = theirs.save(run_dir / f"job-{host.index}.json")
        paths = [path, ip_config, *(Path(plugin.path) for plugin in job.plugins)]
        names = [str(p.relative_to(run_dir)) for p in paths if p.is_relative_to(run_dir)]
        files.append([*names, f"{job.rank_dir.name}/"])
        places.append(cluster.place(host.index, path))
    cluster.deliver(run_dir, files)
    if job.record is not None:
        made = [p for p in sorted(job.record.rglob("*")) if p.is_file()]
        names = [str(path.relative_to(job.record)) for path in made]
        cluster.deliver(job.record, [names] * len(cluster.hosts))
    return places


def with_own_plugins(job: Job) -> Job:
    """The job with its plug-in files in its run directory, which travels to the hosts."""
    folder = job.run_dir / "plugins"
    folder.mkdir(parents=True, exist_ok=True)
    plugins = []
    for plugin in job.plugins:
        copied = folder / f"{plugin.sha256[:16]}.py"
        shutil.copyfile(plugin.path, copied)
        plugins.append(replace(plugin, path=str(copied)))
    return replace(job, plugins=tuple(plugins))


def silence_s(job: Job) -> float:
    """How long trainers may be silent: in sync mode a pull may wait for an answer meanwhile."""
    waits = resolve(job.scenario, job.controller).deadline_s if job.scenario.mode == "sync" else 0
    return SILENCE_S + waits


def check_capacity(scenario: Scenario, partition: Partition) -> None:
    """Refuse a buffer that is larger than what it could hold, before anything starts.

    Raises:
        CapacityError: on the first part whose remote nodes are fewer than the capacity.
    """
    for owned, halo in zip(partition.part_nodes, partition.halo_nodes, strict=True):
        resolve_capacity(scenario.buffer, halo, partition.nodes - owned)


def check_training_nodes(scenario: Scenario, partition: Partition) -> None:
    """Refuse trainers that would have nothing to train on; all would stop with them.

    Raises:
        ScenarioError: fewer training nodes than trainers.
    """
    nodes, trainers = sum(partition.part_train), scenario.parts * scenario.trainers
    if nodes < trainers:
        raise ScenarioError(
            f"graph {scenario.graph!r} has {nodes} training nodes for {trainers} trainers "
            f"(parts = {scenario.parts}, trainers = {scenario.trainers} each); ask for fewer, or "
            "give the graph a larger training split"
        )


def gather(
    job: Job,
    counters: list[dict[str, Any]],
    service: Mapping[str, float] | None = None,
    watch: Watch | None = None,
) -> RunResult:
    """The result of a finished job from what its ranks wrote; saved in the run's directory.

    Args:
        counters: bytes that each host moved.
        service: what happened to the process that served the controllers, if there was one.
        watch: what was seen of the run from here.

    Raises:
        ResultError: a rank ended well but left no result.
    """
    ranks = range(job.scenario.parts * job.scenario.trainers)
    try:
        tables = [pq.read_table(job.table_path(rank)) for rank in ranks]
        facts = [json.loads(job.facts_path(rank).read_text()) for rank in ranks]
        decisions = [
            {"rank": rank, **decision}
            for rank in ranks
            for decision in read_decisions(job.decisions_path(rank))
        ]
    except (OSError, ValueError) as error:
        raise ResultError(f"{job.rank_dir} lacks a rank's result: {error}") from error
    table = pa.concat_tables(tables)
    steering = Tally.merge(Tally.from_state(f["steering"]) for f in facts)
    summary = summarise(
        table,
        filled=sum(f["filled"] for f in facts),
        row_bytes=facts[0]["row_bytes"],
        epoch_seconds=[[e["seconds"] for e in f["epochs"]] for f in facts],
        steering=steering,
        test_metric=facts[0]["test_metric"],
        run_id=job.run_dir.name,
    )
    starts = later_starts(job.run_dir)
    if starts:
        summary["restarts"] = len(starts)
    details = {
        "epochs": [f["epochs"] for f in facts],
        "steering": steering.to_dict(),
        "capacity": [f["capacity"] for f in facts],
        "surplus": [f["surplus"] for f in facts],
        "ahead_bytes": [f["ahead_bytes"] for f in facts],
        "host_counters": counters,
        "partition": str(job.partition),
        "checkpoints": [f["checkpoints"] for f in facts],
        "later_starts": starts,
        "trouble_of_links": trouble_of_links(table, [f["epochs"] for f in facts]),
        "clock_jumps": {
            "launcher": [] if watch is None else watch.clock.jumps,
            "ranks": [f["clock_jumps"] for f in facts],
            "offsets_at_start": {} if watch is None else watch.offsets,
        },
        "service": None if service is None else dict(service),
    }
    result = RunResult(
        job.scenario, job.controller, table, decisions, summary, details, job.run_dir
    )
    result.save(job.run_dir)
    return result
