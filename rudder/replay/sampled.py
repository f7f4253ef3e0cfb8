"""Sampled access traces, made once each: equal accesses, equal place."""

from __future__ import annotations

from pathlib import Path

from rudder.engine import Progress
from rudder.home import Home
from rudder.partition import Partition, ensure_partition
from rudder.replay.engine import FREE
from rudder.scenario import Scenario
from rudder.trace import Trace
from rudder.trace.sampling import record_sampled


def sampled_scenario(scenario: Scenario) -> Scenario:
    """What has to be sampled for a scenario.

    Fields that a replay may change are set to their defaults, all but the seed: scenarios that
    differ in these alone share a trace.
    """
    fields = Scenario.model_fields
    return scenario.change(**{name: fields[name].default for name in FREE if name != "seed"})


def partition_of(scenario: Scenario, home: Home, progress: Progress) -> Partition:
    """The partition that real runs of a scenario use, made if it is not there.

    Raises:
        DatasetError, PartitionError: the graph cannot be read, or cannot be cut so.
    """
    from rudder.distdgl.engine import PARTITION_SEED

    return ensure_partition(
        scenario.graph, scenario.parts, scenario.partition_method, PARTITION_SEED,
        home.partitions, progress,
    )  # fmt: skip


def sampled_folder(home: Home, scenario: Scenario, partition: Partition) -> Path:
    """Where the trace of a :func:`sampled_scenario` lies: equal content, equal place."""
    cut = f"{partition.graph_digest[:8]}{partition.digest[:8]}"
    return home.traces / f"sampled-{scenario.digest()}-{cut}.trace"


def sample(scenario: Scenario, partition: Partition, folder: Path, scratch: Path) -> None:
    """Sample a trace, whole or not at all, unless it is there.

    Args:
        scenario: a :func:`sampled_scenario`.
        folder: by :func:`sampled_folder`.
        scratch: an empty place on the same disk.

    Raises:
        ScenarioError: too few training nodes for the trainers, or for the groups of seeds.
        TraceError: it cannot be written.
    """
    if folder.is_dir():
        return
    record_sampled(scenario, partition, scratch, lambda phase, share: None)
    try:
        scratch.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        # Somebody else was faster; what he sampled is the same.


def finished(folder: Path) -> bool:
    """Does a whole trace lie there?"""
    return folder.is_dir() and Trace.open(folder).complete
