"""Records what a loader samples as one rank of an access trace."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import torch

from rudder.distdgl.features import PartitionView
from rudder.result import MinibatchRow
from rudder.trace import Manifest, RankFacts, TraceRow, TraceWriter, seeds_digest


class Recorder:
    """Holds each minibatch from before its pull until training is done with it, then appends it.

    Args:
        folder: a trace that :func:`rudder.trace.start_trace` made.
        view: tells which nodes are remote.
        rank: global rank of the trainer.
        planned: minibatches of each epoch.
        nids: the trainer's training nodes.

    Raises:
        TraceError: no trace there, or the rank has been recorded already.
    """

    def __init__(
        self,
        folder: Path,
        view: PartitionView,
        rank: int,
        planned: tuple[int, ...],
        nids: torch.Tensor,
    ) -> None:
        facts = RankFacts(rank, planned, seeds_digest(nids.numpy()))
        self._writer = TraceWriter(folder, Manifest.load(folder), facts)
        self._view = view
        self._open: deque[TraceRow] = deque()

    def sampled(self, epoch: int, step: int, input_nodes: torch.Tensor, seeds: int) -> None:
        """Take a minibatch before the buffer is asked; in order of steps."""
        remote = input_nodes[self._view.is_remote(input_nodes)].sort().values.numpy()
        local = input_nodes.numel() - remote.size
        self._open.append(TraceRow(epoch, step, remote, local, seeds))

    def trained(self, row: MinibatchRow) -> None:
        """Training is done with the minibatch of a row: its seconds are final."""
        recorded = self._open.popleft()
        recorded.sample_s, recorded.fetch_s = row.sample_s, row.fetch_s
        recorded.compute_s, recorded.stall_s = row.compute_s, row.stall_s
        self._writer.append(recorded)

    def flush(self) -> None:
        """The epoch was left early: what was pulled, but never trained, was accessed all the same.

        Its compute and stall seconds are 0.
        """
        while self._open:
            self._writer.append(self._open.popleft())

    def close(self) -> None:
        """The recording is whole. Once is enough."""
        self.flush()
        self._writer.close()
