"""Feature rows of a ``DistGraph``, served through one trainer's persistent buffer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rudder.buffer import PersistentBuffer, fill_ids, frequent_ids, resolve_capacity, warm
from rudder.decision import Decision
from rudder.errors import BufferContentError, TransportError
from rudder.partition import DEGREE_FILE
from rudder.policies.base import Ids, Policy
from rudder.result import ID_BYTES
from rudder.scenario import Fill


@dataclass(frozen=True, slots=True)
class Served:
    """One minibatch's feature rows and how they came.

    Attributes:
        rows: ``[n, F]``, in the order of the ids asked for.
        local, remote: ids owned by this part and by others.
        hits, misses, replaced, fetched: as in the per-minibatch table.
        stale_share, occupancy: of the buffer after this minibatch; 0 without a buffer.
    """

    rows: torch.Tensor
    local: int
    remote: int
    hits: int
    misses: int
    replaced: int
    fetched: int
    stale_share: float = 0.0
    occupancy: float = 0.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Distinct nodes whose rows a minibatch needs, told apart by owner.

    Attributes:
        ids: int64 ``[n]``, in the order in which rows are served.
        local_at: positions in ``ids`` of the nodes of this part.
        remote_ids: int64, ascending: the nodes of other parts.
        remote_at: their positions in ``ids``.
    """

    ids: torch.Tensor
    local_at: torch.Tensor
    remote_ids: torch.Tensor
    remote_at: torch.Tensor


class PartitionView:
    """What one trainer can see of the partition: its own range, its halo, degrees.

    Works on any DistDGL partition; ``degree.npy`` beside the partition's config (made by Rudder)
    saves asking the servers for degrees.
    """

    def __init__(self, g: Any) -> None:
        self.g = g
        self.book = g.get_partition_book()
        self.part: int = self.book.partid
        local = g.local_partition
        owned = local.ndata["inner_node"].bool().numpy()
        ids = local.ndata["_ID"].numpy()
        self.halo: Ids = np.sort(ids[~owned])
        self.part_nodes = int(owned.sum())
        self.nodes = int(g.num_nodes())
        self.edges = int(g.num_edges())
        self.parts = int(self.book.num_partitions())

    @property
    def remote_nodes(self) -> int:
        return self.nodes - self.part_nodes

    def is_remote(self, ids: torch.Tensor) -> torch.Tensor:
        """bool ``[n]``: owned by another part."""
        remote: torch.Tensor = self.book.nid2partid(ids) != self.part
        return remote

    def beyond_halo(self) -> Ids:
        """Remote nodes that are not in the 1-hop halo, ascending."""
        everything = torch.arange(self.nodes, dtype=torch.int64)
        remote = everything[self.is_remote(everything)].numpy()
        return np.setdiff1d(remote, self.halo, assume_unique=True)

    def degree(self, ids: Ids) -> npt.NDArray[np.int32]:
        """Degree of every node by id, int32 ``[N]``; only that of ``ids`` need be right."""
        config = os.environ.get("DGL_CONF_PATH")
        stored = Path(config).parent / DEGREE_FILE if config else None
        if stored is not None and stored.exists():
            kept: npt.NDArray[np.int32] = np.load(stored, mmap_mode="r", allow_pickle=False)
            return kept
        degree = np.zeros(self.nodes, np.int32)
        degree[ids] = self.g.in_degrees(torch.from_numpy(ids)).numpy()
        return degree


def node_data(g: Any, name: str) -> Any:
    """``g.ndata[name]``.

    Raises:
        TransportError: there is none; names those that are there.
    """
    if name not in g.ndata:
        raise TransportError(
            f"the graph has no node data {name!r}; it has {', '.join(sorted(g.ndata))}"
        )
    return g.ndata[name]


class BufferedFeatures:
    """Serves ``g.ndata[name][ids]`` through a persistent buffer.

    Local rows are read from the server's shared memory. Remote rows come from the buffer or over
    the network, misses and replacements in one pull.

    Args:
        g: a ``DistGraph``.
        name: node data to serve, 2-D.
        policy: replacement policy.
        buffer: capacity, a share of the halo nodes or a count of rows.
        fill: what the buffer holds at the start.
        seed: of the random fill.
        verify: test mode: compare every served row with the stored one.
        presample: gives the input nodes of so many sampled minibatches, for a policy that fills
            by their frequency.
        state: of the buffer, in the place of a fill: see :meth:`state`.

    Raises:
        TransportError: the graph has no such node data, or not one row of features per node.
        CapacityError: more rows than there are remote nodes.
    """

    def __init__(
        self,
        g: Any,
        name: str,
        policy: Policy,
        buffer: float | int,
        fill: Fill,
        seed: int = 0,
        verify: bool = False,
        presample: Callable[[int], Iterable[torch.Tensor]] | None = None,
        state: dict[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        self.tensor = node_data(g, name)
        if len(self.tensor.shape) != 2:
            raise TransportError(
                f"node data {name!r} has shape {tuple(self.tensor.shape)}; features are [N, F]"
            )
        self.view = PartitionView(g)
        self.verify = verify
        self._local: torch.Tensor = self.tensor.local_partition
        self.width = int(self.tensor.shape[1])
        self.row_bytes = self.width * self._local.element_size()
        halo = self.view.halo
        self.capacity = resolve_capacity(buffer, halo.size, self.view.remote_nodes)
        self.filled = 0
        self.buffer: PersistentBuffer | None = None
        if self.capacity:
            warm()  # in a process of one's own script nobody has
            dtype = torch.empty(0, dtype=self._local.dtype).numpy().dtype
            self.buffer = PersistentBuffer(self.capacity, self.width, policy, dtype=dtype)
            if state is not None:
                self.buffer.load_state_dict(state, self._pull)
                self.filled = self.buffer.filled
                return
            samples: Iterable[torch.Tensor] = ()
            if policy.presample and presample is not None:
                samples = presample(policy.presample)
            self._fill(fill, seed, samples)

    def _fill(self, fill: Fill, seed: int, samples: Iterable[torch.Tensor]) -> None:
        halo, beyond = self.view.halo, np.empty(0, np.int64)
        if self.capacity > halo.size:
            beyond = self.view.beyond_halo()
        degree = np.empty(0, np.int32)
        if fill == "degree":
            degree = self.view.degree(np.concatenate([halo, beyond]))
        ids = fill_ids(fill, self.capacity, halo, degree, beyond, seed)
        counted = [self.locate(nodes).remote_ids.numpy() for nodes in samples]
        if counted:
            ids = frequent_ids(counted, self.capacity, ids)
        self.filled = ids.size
        if self.filled and self.buffer is not None:
            self.buffer.fill(ids, self._pull(ids))

    def _pull(self, ids: Ids) -> npt.NDArray[Any]:
        rows: npt.NDArray[Any] = self.tensor[torch.from_numpy(ids)].numpy()
        return rows

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The buffer's state without its rows, which never change and are pulled again."""
        return {} if self.buffer is None else self.buffer.state_dict(rows=False)

    @property
    def wire_bytes_per_row(self) -> tuple[int, int]:
        """Bytes of feature payload and of requested ids per fetched row."""
        return self.row_bytes, ID_BYTES

    def locate(self, ids: torch.Tensor) -> Wanted:
        """Tell distinct ``ids`` int64 ``[n]`` apart by owner."""
        remote_mask = self.view.is_remote(ids)
        local_at = (~remote_mask).nonzero().squeeze(1)
        remote_at = remote_mask.nonzero().squeeze(1)
        # The buffer wants ascending ids; `remote_at` follows, so that rows land in place.
        remote_ids, order = ids[remote_at].sort()
        return Wanted(ids, local_at, remote_ids, remote_at[order])

    def announce(self, wanted: Wanted) -> None:
        """A sampled minibatch, before it is served: see ``PersistentBuffer.announce``."""
        if self.buffer is not None:
            self.buffer.announce(wanted.remote_ids.numpy())

    def withdraw(self) -> None:
        """What was announced and not served will not come."""
        if self.buffer is not None:
            self.buffer.withdraw()

    def serve(self, wanted: Wanted, decision: Decision | None) -> Served:
        """Rows of ``wanted.ids``, through the buffer.

        Raises:
            BufferContentError: in test mode, a row differs from the stored one.
        """
        ids, local_at, remote_at = wanted.ids, wanted.local_at, wanted.remote_at
        if self.buffer is None:
            remote = remote_at.numel()
            return Served(self.tensor[ids], local_at.numel(), remote, 0, remote, 0, remote)
        out = torch.empty((ids.numel(), self.width), dtype=self._local.dtype)
        plan = self.buffer.plan(wanted.remote_ids.numpy(), decision)
        pulled = np.empty((0, self.width), dtype=out.numpy().dtype)
        if plan.pull.size:
            pulled = self._pull(plan.pull)
        own = self.view.book.nid2localnid(ids[local_at], self.view.part)
        out[local_at] = self._local[own]
        self.buffer.commit(plan, pulled, out.numpy(), remote_at.numpy())
        if self.verify:
            self._verify(ids, out)
        return Served(
            out,
            local_at.numel(),
            remote_at.numel(),
            plan.hits,
            plan.misses,
            plan.replaced,
            plan.fetched,
            plan.stale_share,
            plan.occupancy,
        )

    def _verify(self, ids: torch.Tensor, served: torch.Tensor) -> None:
        stored = self.tensor[ids]
        if not torch.equal(stored, served):
            wrong = (stored != served).any(dim=1).nonzero().squeeze(1)
            raise BufferContentError(
                f"{wrong.numel()} of {ids.numel()} served rows differ from the stored ones; "
                f"first: node {int(ids[wrong[0]])}"
            )
