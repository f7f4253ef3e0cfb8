"""Validation and test: sampled neighbourhoods, features by plain pulls, counts over all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist
from dgl.dataloading import DistNodeDataLoader
from dgl.distributed import DistGraph

from rudder.distdgl.drawing import draw_for
from rudder.distdgl.models import metric_of, score_counts
from rudder.distdgl.rpc_lock import RPC_LOCK
from rudder.distdgl.wire import rpc_payload
from rudder.result import ID_BYTES


class Evaluator:
    """Scores the model on a set of nodes, shared out over the ranks.

    Evaluation passes the buffer by, so that it neither warms nor disturbs it; it is not recorded
    in traces. What it samples is drawn by ``seed``, rank and epoch.
    """

    def __init__(
        self,
        g: DistGraph,
        model: torch.nn.Module,
        sampler: Any,
        batch_size: int,
        multilabel: bool,
        seed: int,
    ) -> None:
        self.g, self.model, self.sampler, self.seed = g, model, sampler, seed
        self.batch_size, self.multilabel = batch_size, multilabel
        self._payload = rpc_payload()

    def run(
        self,
        nodes: torch.Tensor,
        kind: Literal["validate", "test"],
        epoch: int,
        alive: Callable[[], None] = lambda: None,
    ) -> tuple[float | None, int]:
        """The metric over all ranks' ``nodes``, and the bytes that this rank moved for it.

        ``alive`` is called after each minibatch: an evaluation can take longer than a supervisor
        bears with a silent trainer.

        Every rank must call it. The model is not synchronised inside: ranks may hold different
        numbers of minibatches.
        """
        book, features, labels = (
            self.g.get_partition_book(),
            self.g.ndata["feat"],
            self.g.ndata["label"],
        )
        module = getattr(self.model, "module", self.model)
        module.eval()
        row_bytes = features.shape[1] * features.local_partition.element_size() + ID_BYTES
        counts, moved = torch.zeros(3, dtype=torch.float64), 0
        with RPC_LOCK, torch.no_grad():
            self._payload.take()
            draw_for(kind, self.seed, dist.get_rank(), epoch)
            if nodes.numel():
                for inputs, seeds, blocks in DistNodeDataLoader(
                    self.g, nodes, self.sampler, batch_size=self.batch_size
                ):
                    moved += int((book.nid2partid(inputs) != book.partid).sum()) * row_bytes
                    counts += score_counts(module(blocks, features[inputs]), labels[seeds])
                    alive()
            moved += self._payload.take()
        dist.all_reduce(counts)
        return metric_of(counts, self.multilabel), moved
