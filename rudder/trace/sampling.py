"""Traces without a cluster: an in-process sampler over the same partition, trainer by trainer.

The same training nodes, in the same order of groups, batch sizes and fan-outs as a real run; the
neighbours are drawn here instead of by DistDGL's servers. Repeatable: the same scenario over the
same partition gives the same files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path

import numpy as np

from rudder.engine import Progress
from rudder.errors import ScenarioError
from rudder.partition import Partition
from rudder.partition_graph import in_edges, train_nodes
from rudder.sampling import Ids, InEdges
from rudder.scenario import Scenario
from rudder.seeding import Groups, epoch_order, minibatches, seed_groups, split_evenly
from rudder.trace.format import Manifest, RankFacts, TraceRow, seeds_digest
from rudder.trace.writer import TraceWriter, start_partition_trace

NEIGHBOURS = 1
"""Stream of the random numbers that draw neighbours, beside the one that orders seeds."""


def record_sampled(
    scenario: Scenario, partition: Partition, folder: Path, progress: Progress
) -> None:
    """Sample every rank's minibatches and write them as a trace.

    The ranks go on together, so that all have about as much if this is interrupted. Memory: the
    graph and one open part per rank.

    Raises:
        ScenarioError: a rank without training nodes, or more communities than a part has nodes.
        PathTakenError, TraceError: the place is taken, or cannot be written.
        PartitionError: a file of the partition cannot be read.
    """
    progress("graph", 0.0)
    edges = in_edges(partition)
    ranks = split_evenly(train_nodes(partition), scenario.parts, scenario.trainers)
    if not all(seeds.size for seeds in ranks):
        raise ScenarioError(
            f"graph {scenario.graph!r} has too few training nodes for {len(ranks)} trainers: "
            f"{[seeds.size for seeds in ranks]}; ask for fewer"
        )
    groups = [
        seed_groups(scenario, partition, rank // scenario.trainers, seeds)
        for rank, seeds in enumerate(ranks)
    ]
    progress("graph", 1.0)
    # as DDP needs it: every rank has the minibatches of the one with the fewest
    planned = tuple(
        map(min, zip(*(minibatches(scenario, seeds.size) for seeds in ranks), strict=True))
    )
    manifest = Manifest.of(scenario, partition, "sampler", sampled_trace_id(scenario, partition))
    start_partition_trace(folder, manifest, partition)
    with ExitStack() as stack:
        recordings = []
        for rank, seeds in enumerate(ranks):
            facts = RankFacts(rank, planned, seeds_digest(seeds))
            writer = stack.enter_context(TraceWriter(folder, manifest, facts))
            rows = _sampled(scenario, manifest, edges, rank, seeds, groups[rank], planned)
            recordings.append((writer, rows))
        for done in range(1, sum(planned) + 1):
            for writer, rows in recordings:
                writer.append(next(rows))
            progress("sample", done / sum(planned))


def _sampled(
    scenario: Scenario,
    manifest: Manifest,
    edges: InEdges,
    rank: int,
    seeds: Ids,
    groups: Groups | None,
    planned: tuple[int, ...],
) -> Iterator[TraceRow]:
    first, end = manifest.owned(manifest.part_of(rank))
    starts = accumulate(planned, initial=0)
    for epoch, (count, start) in enumerate(zip(planned, starts, strict=False)):
        rng = np.random.default_rng([scenario.seed, rank, epoch, NEIGHBOURS])
        order = epoch_order(groups, seeds.size, scenario.seed, rank, epoch)
        size, fan_out = scenario.batch_size_of(epoch), scenario.fan_out_of(epoch)
        for k in range(count):
            batch = seeds[order[k * size : (k + 1) * size]]
            inputs = edges.input_nodes(batch, fan_out, rng)
            remote = inputs[(inputs < first) | (inputs >= end)]
            yield TraceRow(
                epoch=epoch,
                step=start + k,
                remote_ids=remote,
                local=inputs.size - remote.size,
                seeds=batch.size,
            )


def sampled_trace_id(scenario: Scenario, partition: Partition) -> str:
    """The id that a sampled trace has, whoever samples it and whenever."""
    what = f"{scenario.digest()} {partition.graph_digest} {partition.digest}"
    return hashlib.sha256(what.encode()).hexdigest()[:16]
