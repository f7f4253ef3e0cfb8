"""The contract of a partition: a graph cut into DistDGL's on-disk format, and its facts."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from rudder.dataset import Graph
from rudder.engine import Progress
from rudder.errors import PartitionError

SCHEMA_VERSION = 1
FACTS_FILE = "rudder.json"
DEGREE_FILE = "degree.npy"
NODE_IDS_FILE = "node_ids.npy"


@dataclass(frozen=True)
class Partition:
    """One cached partition. Ids are DistDGL's relabelled global ids unless said otherwise.

    The folder holds DistDGL's ``<graph_name>.json`` and ``part*/``, and beside them
    ``rudder.json`` (these facts), ``degree.npy`` (int32 ``[N]``: out-degree of each node in the
    whole graph: in how many neighbourhoods it lies), ``part<p>/halo.npy`` (int64, ascending: the
    remote nodes one hop from part ``p``, against the edges, as sampling goes) and
    ``assignment.npy`` (int32 ``[N]`` by original id). A graph whose files number its nodes in
    another way than 0..N-1 has ``node_ids.npy`` too (int64 ``[N]``: that number by original id).

    Attributes:
        folder: where it lies.
        graph_name: name for ``DistGraph`` and the stem of the config file.
        graph, graph_digest: dataset spec and content digest of the graph that was cut.
        digest: digest of the assignment of nodes to parts.
        method, seed: partitioner spec and seed.
        nodes, edges, classes, multilabel, feature_width: the graph's facts.
        part_nodes, part_edges, halo_nodes: counts, one per part.
        part_train: training nodes, one per part.
        edge_cut: share of the edges whose ends lie in different parts.
        balance: nodes of the largest part / mean.
        beyond_halo: share of sampled remote nodes that are not 1-hop halo nodes (fan-out 10,25,
            estimated on a sample of minibatches).
    """

    folder: Path
    graph_name: str
    graph: str
    graph_digest: str
    digest: str
    method: str
    seed: int
    nodes: int
    edges: int
    classes: int
    multilabel: bool
    feature_width: int
    part_nodes: tuple[int, ...]
    part_edges: tuple[int, ...]
    halo_nodes: tuple[int, ...]
    part_train: tuple[int, ...]
    edge_cut: float
    balance: float
    beyond_halo: float

    @property
    def parts(self) -> int:
        return len(self.part_nodes)

    @property
    def config(self) -> Path:
        """DistDGL's JSON (what ``DistGraph`` and ``DGL_CONF_PATH`` want)."""
        return self.folder / f"{self.graph_name}.json"

    @property
    def halo_share(self) -> float:
        """Halo nodes per owned node, mean over parts."""
        return sum(self.halo_nodes) / max(sum(self.part_nodes), 1)

    def halo(self, part: int) -> npt.NDArray[np.int64]:
        """Remote nodes one hop from ``part``: int64, ascending."""
        halo: npt.NDArray[np.int64] = np.load(
            self.folder / f"part{part}" / "halo.npy", allow_pickle=False
        )
        return halo

    def degree(self) -> npt.NDArray[np.int32]:
        """Out-degree in the whole graph: int32 ``[N]``, memory-mapped."""
        degree: npt.NDArray[np.int32] = np.load(
            self.folder / DEGREE_FILE, mmap_mode="r", allow_pickle=False
        )
        return degree

    def facts(self) -> dict[str, Any]:
        """Everything but the folder, as plain values."""
        facts = asdict(self)
        del facts["folder"]
        return facts

    def save(self) -> None:
        """Write ``rudder.json``; the last file written, so that its presence means complete."""
        head = {"schema_version": SCHEMA_VERSION, **self.facts()}
        part = self.folder / (FACTS_FILE + ".part")
        part.write_text(json.dumps(head, indent=2) + "\n")
        part.replace(self.folder / FACTS_FILE)

    @classmethod
    def load(cls, folder: Path) -> Partition:
        """Read a partition made by a :class:`Partitioner`.

        Raises:
            PartitionError: incomplete, foreign, or of another schema version.
        """
        try:
            head = json.loads((folder / FACTS_FILE).read_text())
            if not isinstance(head, dict):
                raise ValueError(f"{FACTS_FILE} is no JSON object")
            version = head.pop("schema_version")
            if version != SCHEMA_VERSION:
                raise PartitionError(
                    f"{folder} has schema version {version}, this Rudder reads {SCHEMA_VERSION}; "
                    "delete the folder and partition again"
                )
            if strange := set(head) - {field.name for field in fields(cls)}:
                raise ValueError(f"{FACTS_FILE} holds {', '.join(sorted(strange))}")
            return _PARTITIONS.validate_python({**head, "folder": folder})
        except (OSError, ValueError, KeyError) as error:
            raise PartitionError(f"{folder} holds no complete partition: {error}") from error


_PARTITIONS = TypeAdapter(Partition)


class Partitioner(ABC):
    """Cuts a graph into parts, in DistDGL's format, cached by content."""

    @abstractmethod
    def partition(
        self, graph: Graph, spec: str, parts: int, seed: int, cache: Path, progress: Progress
    ) -> Partition:
        """The partition of ``graph`` under ``cache``, made only if it is not there.

        Args:
            spec: dataset spec of the graph, for the record.

        Raises:
            PartitionError: more parts than nodes, or not enough memory (with numbers).
        """


def ensure_partition(
    graph: str, parts: int, method: str, seed: int, cache: Path, progress: Progress
) -> Partition:
    """Build the graph that a dataset spec names and partition it, both through their registries."""
    from rudder.registries import DATASETS, PARTITIONERS

    PARTITIONERS.check(method)
    progress("graph", 0.0)
    built: Graph = DATASETS.build(graph).validated()
    progress("graph", 1.0)
    partitioner: Partitioner = PARTITIONERS.build(method)
    resolved = str(DATASETS.resolve(graph))
    return partitioner.partition(built, resolved, parts, seed, cache, progress)
