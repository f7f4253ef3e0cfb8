"""Writing a partition in DistDGL's format: ``<name>.json``, ``part<p>/{graph,node_feat,…}.dgl``.

The format is that of ``dgl.distributed.partition_graph`` (DGL 2.1) with one hop of halo nodes:
nodes are relabelled so that each part owns a range of ids, and so are edges; an edge belongs to
the part of its destination and lies in the part of its source too. That function cannot take a
ready assignment, and the one below it needs some 220 bytes per edge; this one a quarter.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.dataset import Graph

Ids = npt.NDArray[np.int64]
_NTYPE = "_N"
_ETYPE = "_N:_E:_N"


@dataclass(frozen=True)
class Relabelling:
    """The two directions between original and DistDGL's global ids, and each part's range.

    Attributes:
        original: int64 ``[N]``, original id by global id.
        new: int64 ``[N]``, global id by original id.
        bounds: int64 ``[parts + 1]``; part ``p`` owns ``bounds[p]`` up to ``bounds[p + 1]``.
    """

    original: Ids
    new: Ids
    bounds: Ids

    @classmethod
    def of(cls, assignment: npt.NDArray[np.int32], parts: int) -> Relabelling:
        original = np.argsort(assignment, kind="stable").astype(np.int64)
        new = np.empty_like(original)
        new[original] = np.arange(original.size)
        sizes = np.bincount(assignment, minlength=parts)
        return cls(original, new, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    def part_of(self, ids: Ids) -> Ids:
        """The part that owns each global id."""
        part: Ids = np.searchsorted(self.bounds, ids, side="right") - 1
        return part


def write_parts(
    graph: Graph,
    ids: Relabelling,
    method: str,
    graph_name: str,
    folder: Path,
    done: Callable[[float], None],
) -> tuple[list[int], list[int]]:
    """Write DistDGL's files and each ``part<p>/halo.npy``; returns edges and halo nodes per part.

    Node data: ``feat`` float32 ``[N, F]``, ``label`` (int64 ``[N]`` or float32 ``[N, C]``),
    ``train_mask``, ``val_mask``, ``test_mask`` (uint8) and ``orig_id`` (int64). Paths in the JSON
    file are relative to it, as DGL reads them, so the folder can be moved.

    Args:
        done: told the share of the parts that are written.
    """
    parts = ids.bounds.size - 1
    src, dst = ids.new[graph.src], ids.new[graph.dst]
    order = np.lexsort((src, dst))  # an edge's global id is its place in this order
    src, dst = src[order], dst[order]
    del order
    edge_bounds = np.searchsorted(dst, ids.bounds).astype(np.int64)
    part_halo: list[int] = []
    metadata: dict[str, Any] = {}
    for part in range(parts):
        where = folder / f"part{part}"
        where.mkdir()
        halo = _write_structure(src, dst, ids, edge_bounds, part, where)
        np.save(where / "halo.npy", halo)
        part_halo.append(int(halo.size))
        _write_data(graph, ids.original[ids.bounds[part] : ids.bounds[part + 1]], where)
        metadata[f"part-{part}"] = {
            "node_feats": f"part{part}/node_feat.dgl",
            "edge_feats": f"part{part}/edge_feat.dgl",
            "part_graph": f"part{part}/graph.dgl",
        }
        done((part + 1) / parts)
    head = {
        "graph_name": graph_name,
        "num_nodes": graph.nodes,
        "num_edges": graph.edges,
        "part_method": method,
        "num_parts": parts,
        "halo_hops": 1,
        "node_map": {_NTYPE: _ranges(ids.bounds)},
        "edge_map": {_ETYPE: _ranges(edge_bounds)},
        "ntypes": {_NTYPE: 0},
        "etypes": {_ETYPE: 0},
    }
    (folder / f"{graph_name}.json").write_text(json.dumps({**head, **metadata}, indent=2) + "\n")
    return np.diff(edge_bounds).tolist(), part_halo


def _ranges(bounds: Ids) -> list[list[int]]:
    return [list(pair) for pair in itertools.pairwise(bounds.tolist())]


def _write_structure(
    src: Ids, dst: Ids, ids: Relabelling, edge_bounds: Ids, part: int, where: Path
) -> Ids:
    """Write one part's ``graph.dgl``; returns its halo nodes, ascending.

    Args:
        src, dst: global ids of all edges, in order of global edge id.
    """
    import dgl
    import torch
    from dgl.data.utils import save_graphs

    start, end = ids.bounds[part], ids.bounds[part + 1]
    first, last = edge_bounds[part], edge_bounds[part + 1]
    leaving = (src >= start) & (src < end)
    leaving[first:last] = False
    # Owned edges first: DistDGL computes local ids of nodes and edges from their ranges.
    edges = np.concatenate([np.arange(first, last), np.flatnonzero(leaving)])
    del leaving
    src, dst = src[edges], dst[edges]
    owned = int(last - first)
    sources = np.unique(src[:owned])
    halo: Ids = sources[(sources < start) | (sources >= end)]
    outside = np.union1d(halo, dst[owned:])
    nodes = np.concatenate([np.arange(start, end), outside])

    def local(ends: Ids) -> Any:
        inside = (ends >= start) & (ends < end)
        far = end - start + np.searchsorted(outside, ends)
        return torch.from_numpy(np.where(inside, ends - start, far))

    graph = dgl.graph((local(src), local(dst)), num_nodes=nodes.size, idtype=torch.int64)
    graph.ndata[dgl.NID] = torch.from_numpy(nodes)
    graph.ndata["inner_node"] = (torch.arange(nodes.size) < int(end - start)).to(torch.uint8)
    graph.ndata["part_id"] = torch.from_numpy(ids.part_of(nodes))
    graph.edata[dgl.EID] = torch.from_numpy(edges)
    graph.edata["inner_edge"] = (torch.arange(edges.size) < owned).to(torch.uint8)
    _save(save_graphs, where / "graph.dgl", [graph])
    return halo


def _write_data(graph: Graph, owned: Ids, where: Path) -> None:
    """Write one part's node data (by original ids) and its empty edge data."""
    import torch
    from dgl.data.utils import save_tensors

    data = {
        "feat": graph.features[owned],
        "label": graph.labels[owned],
        "train_mask": graph.train[owned].astype(np.uint8),
        "val_mask": graph.val[owned].astype(np.uint8),
        "test_mask": graph.test[owned].astype(np.uint8),
        "orig_id": owned.copy(),
    }
    tensors = {f"{_NTYPE}/{name}": torch.from_numpy(array) for name, array in data.items()}
    _save(save_tensors, where / "node_feat.dgl", tensors)
    _save(save_tensors, where / "edge_feat.dgl", {})


def _save(save: Callable[[str, Any], object], path: Path, content: Any) -> None:
    """Save by a function of DGL, which has an error of its own for what the disk refuses.

    Raises:
        OSError: it was not written.
    """
    from dgl import DGLError

    try:
        save(str(path), content)
    except DGLError as error:
        raise OSError(f"{path} cannot be written: {error}") from error
