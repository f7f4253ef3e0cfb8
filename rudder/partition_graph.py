"""What lies inside a partition's DistDGL files, as arrays by DistDGL's relabelled global ids."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import PartitionError, ScenarioError
from rudder.partition import Partition
from rudder.sampling import Ids, InEdges

_log = logging.getLogger(__name__)


def in_edges(partition: Partition) -> InEdges:
    """The whole graph: every part holds the edges that end in it.

    Raises:
        PartitionError: a part's file cannot be read.
    """
    ends = [part_edges(partition, part) for part in range(partition.parts)]
    src = np.concatenate([src for src, _ in ends])
    dst = np.concatenate([dst for _, dst in ends])
    return InEdges.of(src, dst, partition.nodes)


def part_edges(partition: Partition, part: int) -> tuple[Ids, Ids]:
    """Sources and destinations, int64 each, of the edges that end in ``part``.

    Raises:
        PartitionError: the part's file cannot be read.
    """
    from dgl.data.utils import load_graphs

    path = partition.folder / f"part{part}" / "graph.dgl"
    graph: Any = _loaded(load_graphs, path)[0][0]
    src, dst = graph.edges()
    ids, inner = graph.ndata["_ID"].numpy(), graph.edata["inner_edge"].numpy().astype(bool)
    return ids[src.numpy()[inner]], ids[dst.numpy()[inner]]


def train_nodes(partition: Partition) -> Ids:
    """Training nodes of the whole graph: int64, ascending.

    Raises:
        PartitionError: a part's file cannot be read.
    """
    from dgl.data.utils import load_tensors

    found = []
    for part in range(partition.parts):
        tensors = _loaded(load_tensors, partition.folder / f"part{part}" / "node_feat.dgl")
        mask = tensors["_N/train_mask"].numpy().astype(bool)
        found.append(np.flatnonzero(mask) + sum(partition.part_nodes[:part]))
    nodes: Ids = np.concatenate(found).astype(np.int64)
    return nodes


def communities(partition: Partition, part: int, count: int) -> npt.NDArray[np.int32]:
    """Which of ``count`` communities each owned node of ``part`` is in: int32 ``[owned]``.

    They are METIS' parts of the subgraph that the part owns: few edges between them, the same ones
    wherever the partition is the same. Kept in the partition's folder.

    Raises:
        ScenarioError: more communities than the part has nodes.
        PartitionError: a file of the part cannot be read or written, or METIS failed.
    """
    owned = partition.part_nodes[part]
    if count > owned:
        raise ScenarioError(
            f"phases = {count}: part {part} has {owned} nodes, which cannot form more communities"
        )
    kept = partition.folder / f"part{part}" / f"communities-{count}.npy"
    if not kept.exists():
        _keep(kept, _metis(partition, part, count))
    try:
        found: npt.NDArray[np.int32] = np.load(kept, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise PartitionError(f"{kept} cannot be read: {error}; delete that file") from error
    if found.shape != (owned,):
        raise PartitionError(
            f"{kept} holds {list(found.shape)} numbers for {owned} nodes; delete that file"
        )
    return found


def _metis(partition: Partition, part: int, count: int) -> npt.NDArray[np.int32]:
    import dgl
    import torch

    src, dst = part_edges(partition, part)
    first, owned = sum(partition.part_nodes[:part]), partition.part_nodes[part]
    src, dst = src - first, dst - first
    inside = (src >= 0) & (src < owned)
    src, dst = src[inside], dst[inside]
    order = np.lexsort((src, dst))
    ends = torch.from_numpy(src[order]), torch.from_numpy(dst[order])
    with contextlib.redirect_stdout(io.StringIO()) as said:  # DGL prints how long it took
        # By bisection: METIS' other way finds other communities at every call.
        found = assigned(dgl.graph(ends, num_nodes=owned), count, mode="recursive")
    _log.debug("%s", said.getvalue().strip())
    if found is None:
        raise PartitionError(
            f"METIS found no {count} communities in part {part} of {partition.folder}; choose "
            "another number of phases"
        )
    assignment: npt.NDArray[np.int32] = found.numpy().astype(np.int32)
    return assignment


def assigned(graph: Any, parts: int, **how: Any) -> Any:
    """METIS' part of each node of a ``DGLGraph``: a tensor, int64 ``[N]``; None = it failed.

    Args:
        how: options of ``dgl.partition.metis_partition_assignment``.
    """
    import dgl
    from dgl.partition import metis_partition_assignment

    if graph.is_multigraph:  # edges that repeat overrun DGL's buffers
        graph = dgl.to_simple(graph)
    return metis_partition_assignment(graph, parts, **how)


def _keep(path: Path, array: npt.NDArray[np.int32]) -> None:
    """Store whole, unless another process was faster."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.npy")
    try:
        np.save(scratch, array)
        os.link(scratch, path)
    except FileExistsError:
        pass
    except OSError as error:
        raise PartitionError(f"{path} cannot be written: {error}") from error
    finally:
        scratch.unlink(missing_ok=True)


def _loaded(load: Any, path: Path) -> Any:
    from dgl import DGLError

    try:
        return load(str(path))
    except (DGLError, OSError) as error:
        raise PartitionError(
            f"{path} cannot be read: {error}; delete the partition's folder and partition again"
        ) from error
