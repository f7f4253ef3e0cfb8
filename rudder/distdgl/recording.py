"""Records what a loader samples as one rank of an access trace."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import torch

from rudder.distdgl.sampler import Sampled
from rudder.result import MinibatchRow
from rudder.trace import Manifest, RankFacts, TraceRow, TraceWriter, seeds_digest


class Recorder:
    """Holds each minibatch from its pull until training is done with it, then appends it.

    What is recorded was fixed when it was sampled, before the buffer was asked.

    Args:
        folder: a trace that :func:`rudder.trace.start_trace` made.
        rank: global rank of the trainer.
        planned: minibatches of each epoch.
        nids: the trainer's training nodes.

    Raises:
        TraceError: no trace there, or the rank has been recorded already.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        planned: tuple[int, ...],
        nids: torch.Tensor,
    ) -> None:
        facts = RankFacts(rank, planned, seeds_digest(nids.numpy()))
        self._writer = TraceWriter(folder, Manifest.load(folder), facts)
        self._open: deque[tuple[MinibatchRow, Sampled]] = deque()

    def pulled(self, row: MinibatchRow, sampled: Sampled) -> None:
        """Take a minibatch; in order of steps."""
        self._open.append((row, sampled))

    def trained(self) -> None:
        """Training is done with the oldest minibatch that is held: its seconds are final."""
        row, sampled = self._open.popleft()
        wanted = sampled.wanted
        self._writer.append(
            TraceRow(
                row.epoch, row.step, wanted.remote_ids.numpy(), wanted.local_at.numel(), row.seeds,
                row.sample_s, row.fetch_s, row.compute_s, row.stall_s,
            )
        )  # fmt: skip

    def flush(self) -> None:
        """The epoch was left early: what was pulled, but never trained, was accessed all the same.

        Its compute and stall seconds are 0.
        """
        while self._open:
            self.trained()

    def close(self) -> None:
        """The recording is whole. Once is enough."""
        self.flush()
        self._writer.close()
