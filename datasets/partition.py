"""The partitioners ``metis`` and ``random``: DistDGL's format, facts, and the cache."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from rudder.dataset import Graph
from rudder.engine import Progress
from rudder.errors import PartitionError, ScenarioError
from rudder.partition import (
    DEGREE_FILE,
    FACTS_FILE,
    NODE_IDS_FILE,
    SCHEMA_VERSION,
    Partition,
    Partitioner,
)
from rudder.sampling import InEdges

from .locks import alone
from .memory import available_memory, gigabytes
from .partition_assign import Assignment, metis_assignment, random_assignment
from .partition_write import Relabelling, write_parts

_log = logging.getLogger(__name__)

ASSIGNMENT_FILE = "assignment.npy"
MANIFEST_FILE = "files.json"
"""Size of every file, by relative path: a partition that lost something is made again."""

_SEEDS = 200
_FAN_OUT = (10, 25)
_MINIBATCHES = 4
_LONGEST_NAME = 64
"""Of a graph's name: it becomes part of names of files and of shared memory."""
_LIBRARIES = 600_000_000
"""Bytes that a process takes by importing DGL and torch."""


class CachedPartitioner(Partitioner):
    """Looks in the cache, checks memory, has nodes assigned, writes, and renames into place.

    One lock per key: of two processes that want the same partition the second waits for the first
    and then reads its result. The kernel drops the lock of a killed process.
    """

    name: ClassVar[str]
    bytes_per_edge: ClassVar[int]
    """Peak of the assignment step beyond the libraries."""

    @abstractmethod
    def assign(self, graph: Graph, parts: int, seed: int, scratch: Path) -> Assignment:
        """A part for each node, int32 ``[N]``; may use the folder ``scratch``."""

    def partition(
        self, graph: Graph, spec: str, parts: int, seed: int, cache: Path, progress: Progress
    ) -> Partition:
        if parts < 1:
            raise ScenarioError(f"parts = {parts}: must be at least 1")
        if parts > graph.nodes:
            raise ScenarioError(
                f"parts = {parts}, but graph {graph.name!r} has {graph.nodes} nodes; "
                "ask for fewer parts"
            )
        graph_digest = graph.digest()
        folder = cache.resolve() / self._key(graph, graph_digest, parts, seed)
        try:
            return self._found_or_made(graph, graph_digest, spec, parts, seed, folder, progress)
        except OSError as error:
            raise PartitionError(
                f"{folder} cannot be made: {error}; make room there or choose another data "
                "directory: --home"
            ) from error

    def _found_or_made(
        self,
        graph: Graph,
        graph_digest: str,
        spec: str,
        parts: int,
        seed: int,
        folder: Path,
        progress: Progress,
    ) -> Partition:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(f".{folder.name}.lock")
        with alone(lock, lambda: progress("partition", 0.0)):
            if folder.exists():
                found = _cached(folder)
                if found is not None:
                    _check_match(found, graph_digest, parts, self.name, seed)
                    progress("partition", 1.0)
                    return found
                shutil.rmtree(folder)
            self._check_memory(graph, parts)
            scratch = folder.with_name(f".{folder.name}.part")
            if scratch.exists():  # left by a process that was killed: we hold its lock now
                shutil.rmtree(scratch)
            scratch.mkdir()
            try:
                self._make(graph, graph_digest, spec, parts, seed, scratch, progress)
                scratch.rename(folder)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        progress("partition", 1.0)
        return Partition.load(folder)

    def _key(self, graph: Graph, graph_digest: str, parts: int, seed: int) -> str:
        content = [SCHEMA_VERSION, self.name, graph_digest, parts, seed]
        # The graph's digest is of its arrays: it does not know of classes that nobody is in.
        if not graph.multilabel and graph.classes != int(graph.labels.max()) + 1:
            content.append(graph.classes)
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]
        return f"{_graph_name(graph)}-{self.name}-{parts}-{seed}-{digest}"

    def _check_memory(self, graph: Graph, parts: int) -> None:
        needed, available = self.peak_memory(graph, parts), available_memory()
        if needed > available:
            raise PartitionError(
                f"partitioning graph {graph.name!r} ({graph.nodes} nodes, {graph.edges} edges) by "
                f"{self.name} needs about {gigabytes(needed)} of memory beside the graph and "
                f"{gigabytes(available)} are available; free some, use a machine with more"
                + ("" if self.name == "random" else ", or the partitioner 'random'")
            )

    def peak_memory(self, graph: Graph, parts: int) -> int:
        """Estimated peak in bytes beyond the graph itself: assignment or writing, the larger.

        Measured on R-MAT-like graphs of 2 and 4 million edges: METIS 560 MB and 125 bytes per edge,
        writing 440 MB and 55 bytes per edge; the estimate lies above both.
        """
        row = graph.features[:1].nbytes + graph.labels[:1].nbytes
        writing = 64 * graph.edges + 100 * graph.edges / parts + 2 * row * graph.nodes / parts
        return int(_LIBRARIES + 64 * graph.nodes + max(self.bytes_per_edge * graph.edges, writing))

    def _make(
        self,
        graph: Graph,
        graph_digest: str,
        spec: str,
        parts: int,
        seed: int,
        folder: Path,
        progress: Progress,
    ) -> None:
        progress("partition", 0.0)
        assignment = self.assign(graph, parts, seed, folder)
        np.save(folder / ASSIGNMENT_FILE, assignment)
        progress("partition", 0.5)
        name = _graph_name(graph)
        ids = Relabelling.of(assignment, parts)
        degree = np.bincount(graph.src, minlength=graph.nodes)[ids.original]
        np.save(folder / DEGREE_FILE, degree.astype(np.int32))
        if graph.node_ids is not None:
            np.save(folder / NODE_IDS_FILE, graph.node_ids)
        part_edges, halo_nodes = write_parts(
            graph,
            ids,
            self.name,
            name,
            folder,
            lambda share: progress("partition", 0.5 + share / 3),
        )
        part_nodes = np.diff(ids.bounds)
        train = np.bincount(assignment[graph.train], minlength=parts)
        cut = np.count_nonzero(assignment[graph.src] != assignment[graph.dst])
        beyond = _beyond_halo(graph, assignment, parts, seed)
        (folder / MANIFEST_FILE).write_text(json.dumps(_sizes(folder), indent=2) + "\n")
        Partition(
            folder=folder,
            graph_name=name,
            graph=spec,
            graph_digest=graph_digest,
            digest=hashlib.sha256(assignment.tobytes()).hexdigest()[:16],
            method=self.name,
            seed=seed,
            nodes=graph.nodes,
            edges=graph.edges,
            classes=graph.classes,
            multilabel=graph.multilabel,
            feature_width=int(graph.features.shape[1]),
            part_nodes=tuple(part_nodes.tolist()),
            part_edges=tuple(part_edges),
            halo_nodes=tuple(halo_nodes),
            part_train=tuple(train.tolist()),
            edge_cut=cut / max(graph.edges, 1),
            balance=float(part_nodes.max() / part_nodes.mean()),
            beyond_halo=beyond,
        ).save()


class MetisPartitioner(CachedPartitioner):
    """METIS: few cut edges; nodes and training nodes balanced."""

    name = "metis"
    bytes_per_edge = 160

    def assign(self, graph: Graph, parts: int, seed: int, scratch: Path) -> Assignment:
        return metis_assignment(graph, parts, seed, scratch)


class RandomPartitioner(CachedPartitioner):
    """Nodes dealt at random: perfectly balanced, remote-heavy."""

    name = "random"
    bytes_per_edge = 0

    def assign(self, graph: Graph, parts: int, seed: int, scratch: Path) -> Assignment:
        return random_assignment(graph, parts, seed)


def _graph_name(graph: Graph) -> str:
    """The graph's name as DGL can use it: in a file name and in names of shared memory."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", graph.name)[:_LONGEST_NAME].strip("_-") or "graph"
    # "<name>.json" must not be one of our own files.
    return f"{name}_graph" if f"{name}.json" in (FACTS_FILE, MANIFEST_FILE) else name


def _sizes(folder: Path) -> dict[str, int]:
    return {
        str(file.relative_to(folder)): file.stat().st_size
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def _cached(folder: Path) -> Partition | None:
    """The partition in ``folder``, or None (and a warning) if files are missing or cut short."""
    try:
        partition = Partition.load(folder)
        expected = json.loads((folder / MANIFEST_FILE).read_text())
        if not isinstance(expected, dict):
            raise ValueError(f"{folder / MANIFEST_FILE} is no list of files")
    except (PartitionError, OSError, ValueError) as error:
        _log.warning("partitioning again: %s", error)
        return None
    found = _sizes(folder)
    wrong = [name for name, size in expected.items() if found.get(name) != size]
    if wrong:
        _log.warning("partitioning again: %s lacks or has cut short %s", folder, ", ".join(wrong))
        return None
    return partition


def _check_match(found: Partition, graph_digest: str, parts: int, method: str, seed: int) -> None:
    pairs = {
        "graph_digest": (found.graph_digest, graph_digest),
        "parts": (found.parts, parts),
        "method": (found.method, method),
        "seed": (found.seed, seed),
    }
    wrong = [
        f"{key} {have!r}, wanted {want!r}" for key, (have, want) in pairs.items() if have != want
    ]
    if wrong:
        raise PartitionError(
            f"{found.folder} holds another partition than its name says: {'; '.join(wrong)}; "
            "delete the folder"
        )


def _beyond_halo(graph: Graph, assignment: npt.NDArray[np.int32], parts: int, seed: int) -> float:
    """Share of sampled remote nodes beyond the 1-hop halo, over some minibatches of every part."""
    rng = np.random.default_rng(seed)
    in_edges = InEdges.of(graph.src, graph.dst, graph.nodes)
    remote = beyond = 0
    for part in range(parts):
        owned = assignment == part
        halo = np.zeros(graph.nodes, np.bool_)
        halo[graph.src[owned[graph.dst]]] = True
        seeds = np.flatnonzero(owned & graph.train)
        for _ in range(_MINIBATCHES if seeds.size else 0):
            chosen = rng.choice(seeds, min(_SEEDS, seeds.size), replace=False)
            inputs = in_edges.input_nodes(chosen, _FAN_OUT, rng)
            inputs = inputs[~owned[inputs]]
            remote += inputs.size
            beyond += np.count_nonzero(~halo[inputs])
    return beyond / max(remote, 1)
