"""Draws minibatches from DGL's loader in the pulling thread, as far ahead as a policy looks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rudder.distdgl.drawing import draw_for
from rudder.distdgl.epochs import Epochs
from rudder.distdgl.features import BufferedFeatures, Wanted
from rudder.distdgl.rpc_lock import RPC_LOCK
from rudder.distdgl.wire import rpc_payload

Minibatch = tuple[torch.Tensor, torch.Tensor, list[Any]]

_PRESAMPLED = 2**31
"""Number of the first order that is drawn for counting only: no training epoch has it."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One sampled minibatch that waits for its pull.

    Attributes:
        epoch: to which it belongs.
        minibatch: ``(input_nodes, seeds, blocks)``.
        wanted: its input nodes, told apart by owner.
        seconds: that sampling took.
        sampling_bytes: RPC payload of sampling.
        nbytes: memory that it holds.
    """

    epoch: int
    minibatch: Minibatch
    wanted: Wanted
    seconds: float
    sampling_bytes: int
    nbytes: int


class Sampler:
    """Hands out an epoch's minibatches in order; samples ``window`` beyond the one handed out.

    The order of the seeds is a matter of the epoch alone, and what is drawn of epoch and minibatch,
    so that sampling ahead changes neither these nor which minibatch trains when. Every minibatch is
    announced to the buffer as it is sampled.
    Not for use by several threads at once.

    Args:
        epochs: DGL's loaders.
        planned: minibatches of each epoch; further epochs are like the last.
        features: what minibatches are announced to.
        window: minibatches ahead; 0 = none.
        last: the last epoch that will come: sampling goes on into the next one up to it; -1 = not
            known, then sampling ends with each epoch.
    """

    def __init__(
        self,
        epochs: Epochs,
        planned: Sequence[int],
        features: BufferedFeatures,
        window: int,
        last: int,
    ) -> None:
        self._epochs, self._planned = epochs, planned
        self._features, self._window, self._last = features, window, last
        self._drawing: Any = None
        self._payload = rpc_payload()
        self._ahead: deque[Sampled] = deque()
        self._epoch = self._drawn_epoch = -1  # handed out from; sampled from
        self._left = self._drawn_left = 0  # minibatches of these
        self._bytes = 0
        self.ahead_bytes = 0
        """Most memory that minibatches beyond the one handed out have held so far."""

    def begin(self, epoch: int) -> None:
        """Minibatches of this epoch come next; what is left of the one before is dropped."""
        whole = self._left == 0 and epoch == self._epoch + 1
        self._epoch, self._left = epoch, self.minibatches(epoch)
        if whole and self._drawn_epoch >= epoch:
            return
        self._ahead.clear()
        self._bytes = 0
        self._features.withdraw()
        self._begin_drawing(epoch)

    def _begin_drawing(self, epoch: int) -> None:
        self._drawn_epoch, self._drawn_left = epoch, self.minibatches(epoch)
        self._drawing = self._epochs.begin(epoch)

    def minibatches(self, epoch: int) -> int:
        """Minibatches of an epoch."""
        return self._planned[min(epoch, len(self._planned) - 1)]

    def next(self) -> Sampled | None:
        """The epoch's next minibatch; None at its end."""
        if self._left == 0:
            return None
        self._left -= 1
        while len(self._ahead) <= self._window and self._more():
            sampled = self._draw()
            self._ahead.append(sampled)
            self._bytes += sampled.nbytes
            self._features.announce(sampled.wanted)
        first = self._ahead.popleft()
        self._bytes -= first.nbytes
        self.ahead_bytes = max(self.ahead_bytes, self._bytes)
        return first

    def _more(self) -> bool:
        """Is there one to be sampled? Goes on to the next epoch if that is known to come."""
        if self._drawn_left == 0 and self._drawn_epoch < self._last:
            self._begin_drawing(self._drawn_epoch + 1)
        return self._drawn_left > 0

    def _draw(self) -> Sampled:
        number = self.minibatches(self._drawn_epoch) - self._drawn_left
        self._drawn_left -= 1
        with RPC_LOCK:
            start = time.perf_counter()
            draw_for("train", *self._epochs.key(self._drawn_epoch), number)
            self._payload.take()
            minibatch: Minibatch = next(self._drawing)
            seconds = time.perf_counter() - start
            sampling_bytes = self._payload.take()
        wanted = self._features.locate(minibatch[0])
        nbytes = memory_of(minibatch) if self._window else 0
        return Sampled(self._drawn_epoch, minibatch, wanted, seconds, sampling_bytes, nbytes)


def presampled(epochs: Epochs, minibatches: int) -> Iterator[torch.Tensor]:
    """Input nodes of some minibatches like those of epoch 0, which are not trained."""
    per_epoch = max(epochs.minibatches(0), 1)
    for number in range(minibatches if epochs.minibatches(0) else 0):
        if number % per_epoch == 0:
            drawing = epochs.begin(0, order=_PRESAMPLED + number // per_epoch)
        with RPC_LOCK:
            draw_for("presample", *epochs.key(number // per_epoch), number)
            input_nodes: torch.Tensor = next(drawing)[0]
        yield input_nodes


def memory_of(minibatch: Minibatch) -> int:
    """Bytes of a sampled minibatch: ids, the blocks' edges (two ends each) and their data."""
    input_nodes, seeds, blocks = minibatch
    tensors = [input_nodes, seeds]
    edges = 0
    for block in blocks:
        edges += 2 * block.num_edges() * block.idtype.itemsize
        for data in (block.srcdata, block.dstdata, block.edata):
            tensors += [data[name] for name in data.keys()]  # noqa: SIM118 - no mapping
    held = {tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in tensors}
    return edges + sum(held.values())
