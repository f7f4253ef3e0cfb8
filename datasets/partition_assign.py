"""Assigning nodes to parts: METIS (in a process of its own) and random."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rudder.dataset import Graph
from rudder.errors import PartitionError

_log = logging.getLogger(__name__)

Assignment = npt.NDArray[np.int32]

_ZERO_MEMORY = {"MALLOC_PERTURB_": "255"}
"""Has glibc fill memory that it hands out with the complement of that byte (mallopt(3))."""


def random_assignment(graph: Graph, parts: int, seed: int) -> Assignment:
    """Deal shuffled nodes round-robin, training nodes first: parts differ by one node at most,
    and so do their training nodes. int32 ``[N]`` by node."""
    order = np.random.default_rng(seed).permutation(graph.nodes)
    order = np.concatenate([order[graph.train[order]], order[~graph.train[order]]])
    assignment = np.empty(graph.nodes, np.int32)
    assignment[order] = np.arange(graph.nodes, dtype=np.int64) % parts
    return assignment


def metis_assignment(graph: Graph, parts: int, seed: int, scratch: Path) -> Assignment:
    """METIS with training and other nodes balanced apart. int32 ``[N]`` by node.

    DGL offers no seed for METIS: the seed permutes the nodes that METIS sees, which changes its
    result. METIS reads memory that it has not written, so that one seed gave several results; it
    is given memory that is zero.

    METIS runs in a child process: it may end its process by a signal, writes to the terminal, and
    gives its memory back only at the end.

    Args:
        scratch: an existing folder for what is handed over; files are removed afterwards.

    Raises:
        PartitionError: METIS failed, or left a part without nodes.
    """
    if parts == 1:  # METIS divides by zero
        return np.zeros(graph.nodes, np.int32)
    inputs = {"src": graph.src, "dst": graph.dst, "train": graph.train}
    for name, array in inputs.items():
        np.save(scratch / f"{name}.npy", array)
    command = [sys.executable, "-I", "-m", "rudder_datasets.metis"]
    command += [str(parts), str(seed), str(os.getpid())]
    done = subprocess.run(
        command,
        cwd=scratch,
        env={**os.environ, **_ZERO_MEMORY},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for line in done.stdout.splitlines():
        _log.debug("metis: %s", line)
    if done.returncode != 0:
        last = done.stdout.strip().splitlines()[-1:] or ["it said nothing"]
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"code {done.returncode}"
        raise PartitionError(
            f"METIS on graph {graph.name!r} ({graph.nodes} nodes, {graph.edges} edges, {parts} "
            f"parts) ended with {how}: {last[0]}. Try the partitioner 'random'"
        )
    assignment: Assignment = np.load(scratch / "assignment.npy", allow_pickle=False)
    for name in (*inputs, "assignment"):
        (scratch / f"{name}.npy").unlink()
    sizes = np.bincount(assignment, minlength=parts)
    if sizes.min() == 0:
        raise PartitionError(
            f"METIS left {np.count_nonzero(sizes == 0)} of {parts} parts of graph {graph.name!r} "
            f"({graph.nodes} nodes) empty; use fewer parts or the partitioner 'random'"
        )
    return assignment
