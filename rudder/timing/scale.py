"""Scale on paper: the model of time at a machine size that nobody measured here. An estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import UsageError
from rudder.timing.machine import Machine
from rudder.timing.phases import Load, Phases, phases
from rudder.timing.recurrence import run_epoch
from rudder.timing.traffic import Traffic
from rudder.trace import Trace

ASSUMPTIONS = (
    "an ESTIMATE: no run of this size was made",
    "same graph, fan-out and batch size",
    "input nodes of a minibatch, their local share and the buffer's hit rate go on as powers of "
    "the parts (a local share of 1/parts with random parts)",
    "the halo's size and the balance of links go on as straight lines over log2(parts), balance at "
    "least 1",
    "hit rates of replays as long as the traces: give each about the same minibatches per trainer",
    "the buffer stays the same share of the halo, and each host's trainers share its link",
    "every trainer has cores of its own, as fast as those that were calibrated, and the buckets of "
    "the links hold no burst",
    "all minibatches are alike; each waits for the trainer with the busiest link",
    "gradients go round one ring over all trainers, each message with the latency given",
    "the controller's answers take no time from training",
)
_LEAST = 1e-9
"""What a share of 0 is taken for where its logarithm is fitted."""


@dataclass(frozen=True)
class Shape:
    """What a trace says about its number of parts; means over ranks and minibatches.

    Attributes:
        parts: hosts, of one trainer each.
        minibatches: of a trainer in the trace.
        nodes: input nodes of a minibatch.
        local_share: of these, those that the own part holds.
        fetched_share: of the remote ones, those that were fetched beside the buffer.
        halo_share: 1-hop remote nodes / owned nodes of a part.
        balance: seconds of the slowest rank's pull / those of the mean rank's rows on a link of
            its own.
    """

    parts: int
    minibatches: int
    nodes: float
    local_share: float
    fetched_share: float
    halo_share: float
    balance: float

    @classmethod
    def of(cls, trace: Trace, fetched_share: float) -> Shape:
        """Of a trace with one trainer per part.

        Args:
            fetched_share: from a replay of it.

        """
        manifest = trace.manifest
        counts = np.array(
            [
                (row.local, len(row.remote_ids))
                for rank in trace.ranks
                for row in trace.minibatches(rank)
            ],
            dtype=np.float64,
        )
        local, remote = counts.mean(axis=0)
        traffic = Traffic.of(trace)
        rows = traffic.rows.sum(axis=1)
        busiest = float((rows * traffic.contention()).max())
        return cls(
            parts=manifest.parts,
            minibatches=trace.common_length,
            nodes=float(local + remote),
            local_share=float(local / (local + remote)),
            fetched_share=fetched_share,
            halo_share=float(np.divide(manifest.halo_nodes, manifest.part_nodes).mean()),
            balance=busiest / float(rows.mean()) if rows.any() else 1.0,
        )


@dataclass(frozen=True)
class Target:
    """The machine and job that are estimated.

    Attributes:
        hosts, trainers: hosts, and trainers on each.
        rate: Mbit/s each way at each host.
        latency_s: of one message.
        train_nodes: of the graph.
        batch_size: seeds per minibatch.
        row_bytes: of a feature row.
        depth: pulls run so far ahead.
    """

    hosts: int
    trainers: int
    rate: float
    latency_s: float
    train_nodes: int
    batch_size: int
    row_bytes: float
    depth: int

    @property
    def ranks(self) -> int:
        return self.hosts * self.trainers

    @property
    def minibatches(self) -> int:
        """Of a trainer in an epoch."""
        return max(1, math.ceil(self.train_nodes / (self.ranks * self.batch_size)))


def check_comparable(traces: Sequence[Trace]) -> None:
    """Refuse traces that no estimate can start from.

    Raises:
        UsageError: several trainers per part, traces that differ in more than their parts, or fewer
            than two different numbers of parts.
    """
    for trace in traces:
        manifest, first = trace.manifest, traces[0].manifest
        if manifest.scenario.trainers != 1:
            raise UsageError(
                f"{trace.folder} has {manifest.scenario.trainers} trainers per part; an estimate "
                "starts from traces with one (it adds the others itself)"
            )
        for what, found, wanted in (
            ("graph", manifest.graph_digest, first.graph_digest),
            ("batch size", manifest.scenario.batch_size, first.scenario.batch_size),
            ("fan-out", manifest.scenario.fan_out, first.scenario.fan_out),
            ("partitioner", manifest.scenario.partition_method, first.scenario.partition_method),
        ):
            if found != wanted:
                raise UsageError(
                    f"{trace.folder} has another {what} ({found}) than {traces[0].folder} "
                    f"({wanted}); an estimate starts from traces that differ in their parts only"
                )
    _check_parts({trace.manifest.parts for trace in traces})


def _check_parts(parts: Collection[int]) -> None:
    if len(parts) < 2:
        raise UsageError("an estimate needs traces at two or more different numbers of parts")


def extrapolate(shapes: Sequence[Shape], parts: int) -> Shape:
    """What a trace at ``parts`` parts would say, from at least two others.

    Raises:
        UsageError: fewer than two different numbers of parts.
    """
    _check_parts({shape.parts for shape in shapes})
    x = np.log2([shape.parts for shape in shapes])
    at = math.log2(parts)

    def line(value: Callable[[Shape], float]) -> float:
        slope, start = np.polyfit(x, [value(shape) for shape in shapes], 1)
        return float(slope * at + start)

    def power(value: Callable[[Shape], float]) -> float:
        return float(2.0 ** line(lambda shape: math.log2(max(value(shape), _LEAST))))

    return Shape(
        parts=parts,
        minibatches=max(shapes, key=lambda shape: shape.parts).minibatches,
        nodes=power(lambda shape: shape.nodes),
        local_share=min(power(lambda shape: shape.local_share), 1.0),
        fetched_share=max(1 - power(lambda shape: 1 - shape.fetched_share), 0.0),
        halo_share=max(line(lambda shape: shape.halo_share), 0.0),
        balance=max(line(lambda shape: shape.balance), 1.0),
    )


def seconds_at(machine: Machine, shape: Shape, target: Target) -> dict[str, float]:
    """The model's seconds of one minibatch's phases and of an epoch of ``target``.

    All trainers are the slowest one: pulls of ``balance`` times the mean rows, on a link that the
    host's trainers share.
    """
    own = replace(machine, cores=0.0, burst_bytes=0.0, latency_s=target.latency_s)
    remote = shape.nodes * (1 - shape.local_share)
    load = Load(
        nodes=_number(shape.nodes),
        fetched=_number(remote * shape.fetched_share),
        sampling_bytes=_number(remote * machine.sampling_row_bytes * target.trainers),
        gradient_bytes=_number(machine.gradient_bytes(target.ranks)),
        row_bytes=target.row_bytes,
        rate=_number(target.rate),
        contention=_number(shape.balance * target.trainers),
    )
    one = phases(own, load, target.ranks, target.depth)
    count = target.minibatches
    alike = (np.full((1, count), s) for s in (one.sample_s, one.fetch_s, one.compute_s))
    epoch = run_epoch(Phases(*alike), target.depth)
    return {
        "sample_s": float(one.sample_s),
        "fetch_s": float(one.fetch_s),
        "compute_s": float(one.compute_s),
        "minibatches": count,
        "epoch_seconds": epoch.seconds,
        "minibatch_seconds": epoch.seconds / count,
    }


def estimate(machine: Machine, shapes: Sequence[Shape], target: Target) -> dict[str, Any]:
    """The estimate for ``target``, its assumptions, and what the same method errs by.

    ``check`` predicts the shape with the most parts from those with fewer, and the seconds at that
    many hosts of ``target``'s kind, against what follows from the measured shape; None where only
    one other number of parts was measured.

    Raises:
        UsageError: as :func:`extrapolate`.
    """
    shape = extrapolate(shapes, target.hosts)
    ordered = sorted(shapes, key=lambda s: s.parts)
    return {
        "estimate": True,
        "target": {**asdict(target), "ranks": target.ranks},
        "extrapolated": asdict(shape),
        **seconds_at(machine, shape, target),
        "measured": [asdict(s) for s in ordered],
        "check": _check(machine, ordered, target),
        "assumptions": list(ASSUMPTIONS),
        "calibration": machine.source.get("run_id"),
    }


def _check(machine: Machine, ordered: Sequence[Shape], target: Target) -> Mapping[str, Any] | None:
    most = ordered[-1]
    fewer = [shape for shape in ordered if shape.parts < most.parts]
    if len({shape.parts for shape in fewer}) < 2:
        return None
    predicted = extrapolate(fewer, most.parts)
    there = replace(target, hosts=most.parts)
    seconds = [seconds_at(machine, s, there)["minibatch_seconds"] for s in (predicted, most)]
    errors = {
        name: value / asdict(most)[name] - 1 if asdict(most)[name] else None
        for name, value in asdict(predicted).items()
        if name not in ("parts", "minibatches")
    }
    return {
        "parts": most.parts,
        "from_parts": [shape.parts for shape in fewer],
        "minibatch_seconds_predicted": seconds[0],
        "minibatch_seconds_from_measured": seconds[1],
        "error": {**errors, "minibatch_seconds": seconds[0] / seconds[1] - 1},
    }


def _number(value: float) -> npt.NDArray[np.float64]:
    return np.asarray(value, dtype=np.float64)
