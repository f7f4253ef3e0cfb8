"""Seconds of the phases of a minibatch: the equations of README.md, scalars or arrays alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rudder.result import ID_BYTES
from rudder.timing.machine import Machine

EQUATIONS = 2
"""Version of these equations and of those in :mod:`rudder.timing.recurrence`: seconds of two
versions are not put into one table."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Load:
    """What minibatches ask of CPUs and link; arrays that broadcast together.

    Attributes:
        nodes: input nodes.
        fetched: rows pulled.
        sampling_bytes, gradient_bytes: on the trainer's link.
        row_bytes: of a feature row.
        rate: Mbit/s each way; 0 = unshaped.
        contention: of the rank (:meth:`rudder.timing.traffic.Traffic.contention`).
    """

    nodes: Floats
    fetched: Floats
    sampling_bytes: Floats
    gradient_bytes: Floats
    row_bytes: float
    rate: Floats
    contention: Floats


@dataclass(frozen=True)
class Phases:
    """Seconds of sampling, of pulling, and of computing with the gradient exchange."""

    sample_s: Floats
    fetch_s: Floats
    compute_s: Floats


def phases(machine: Machine, load: Load, ranks: int, depth: int) -> Phases:
    """Seconds of each minibatch's phases, for ``ranks`` trainers that pull ``depth`` ahead."""
    sample, serve, train = cpu_seconds(machine, load.nodes, load.nodes * load.row_bytes)
    stretch = machine.stretch(ranks)
    wait = machine.sampling_wait if depth else machine.sampling_wait_slowest
    wire = link_seconds(load.sampling_bytes, load.rate)
    sample_s = stretch * sample + wait * wire + machine.latency_s
    train_s = stretch * train
    # At depth 0 the bucket fills while trainers compute; else the link serves pulls meanwhile.
    filled = tokens(machine, train_s if depth == 0 else np.zeros(()), load.rate)
    gradients = _sent(machine, load.gradient_bytes - filled, load.rate)
    left = np.maximum(filled - load.gradient_bytes, 0.0)
    exchange = gradients + 2 * (ranks - 1) * machine.latency_s
    fetch_s = stretch * serve + pull_seconds(machine, load, sample_s, left)
    if depth:
        fetch_s = fetch_s + gradients
    compute_s = train_s + exchange
    if depth and machine.cores:
        # Both threads of all trainers share the cores: no round is shorter than their work. While
        # gradients are on the link, the other thread has the cores.
        busy = ranks / machine.cores * (sample + serve + train)
        compute_s = np.maximum(compute_s, busy)
    return Phases(sample_s, fetch_s, compute_s)


def cpu_seconds(machine: Machine, nodes: Floats, feature_bytes: Floats) -> tuple[Floats, ...]:
    """Seconds of one core for sampling, serving features and training."""
    return (
        machine.sample_fixed_s + machine.sample_node_s * nodes,
        machine.serve_fixed_s + machine.serve_byte_s * feature_bytes,
        machine.train_fixed_s + machine.train_byte_s * feature_bytes,
    )


def pull_seconds(machine: Machine, load: Load, sample_s: Floats, left: Floats) -> Floats:
    """Seconds of the rows fetched and of their ids, with the messages that carry them.

    Args:
        sample_s: seconds of the sampling before, during which the bucket fills.
        left: bytes in the bucket when sampling began.
    """
    wire = load.fetched * (load.row_bytes + ID_BYTES) * load.contention
    held = left + tokens(machine, sample_s, load.rate) - load.sampling_bytes
    credit = np.clip(held, 0.0, machine.burst_bytes)
    seconds = _sent(machine, wire - credit, load.rate)
    messages: Floats = np.where(load.fetched > 0, 2 * machine.latency_s, 0.0)
    return seconds + messages


def tokens(machine: Machine, seconds: Floats, rate: Floats) -> Floats:
    """Bytes that a token bucket gains in a pause: at most its burst."""
    gained: Floats = np.minimum(machine.burst_bytes, seconds * rate * 1e6 / 8)
    return gained


def _sent(machine: Machine, nbytes: Floats, rate: Floats) -> Floats:
    return link_seconds(np.maximum(nbytes, 0.0), rate) / machine.efficiency


def link_seconds(nbytes: Floats, rate: Floats) -> Floats:
    """Seconds of bytes at a rate in Mbit/s; none where it is 0 (unshaped: in the CPU's seconds)."""
    bits = np.asarray(nbytes * 8.0, dtype=np.float64)
    per_second = np.broadcast_to(np.asarray(rate, dtype=np.float64) * 1e6, bits.shape)
    return np.divide(bits, per_second, out=np.zeros_like(bits), where=per_second > 0)
