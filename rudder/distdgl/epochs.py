"""DGL's own loader for each epoch: its seeds, their order, batch size and fan-out."""

from __future__ import annotations

from typing import Any

import dgl.dataloading
import torch

from rudder.scenario import Scenario
from rudder.seeding import Groups, epoch_order


class Epochs:
    """What an epoch samples: a matter of the epoch alone, whatever was sampled before it.

    Args:
        g, nids, graph_sampler, shuffle, drop_last: as DGL's ``DistNodeDataLoader`` takes them.
        scenario: batch size and fan-out of each epoch, and the seed of the order.
        rank: global rank of the trainer.
        groups: of each seed, int32 ``[n]``: an epoch takes them group by group, shuffled inside,
            whatever ``shuffle`` says; None = no groups.
    """

    def __init__(
        self,
        g: Any,
        nids: torch.Tensor,
        graph_sampler: Any,
        scenario: Scenario,
        rank: int,
        groups: Groups | None,
        shuffle: bool,
        drop_last: bool,
    ) -> None:
        self._g, self._nids, self._sampler = g, nids, graph_sampler
        self._scenario, self._rank, self._groups = scenario, rank, groups
        self._shuffle, self._drop_last = shuffle, drop_last
        self._loaders: dict[tuple[int, tuple[int, ...]], Any] = {}

    def minibatches(self, epoch: int) -> int:
        """Minibatches of this trainer in an epoch."""
        size, seeds = self._scenario.batch_size_of(epoch), len(self._nids)
        return seeds // size if self._drop_last else -(-seeds // size)

    def key(self, epoch: int) -> tuple[int, int, int]:
        """What an epoch's draws depend on: seed, rank, epoch."""
        return self._scenario.seed, self._rank, epoch

    def begin(self, epoch: int, order: int | None = None) -> Any:
        """DGL's loader, at the start of an epoch; ends the epoch that it was in.

        Args:
            order: take the seeds in the order of this epoch instead.
        """
        kind = self._scenario.batch_size_of(epoch), self._scenario.fan_out_of(epoch)
        if kind not in self._loaders:
            self._loaders[kind] = self._made(*kind)
        loader = self._loaders[kind]
        loader.data_idx = self.order(epoch if order is None else order)
        return iter(loader)

    def order(self, epoch: int) -> torch.Tensor:
        """Places of the seeds in an epoch, int64 ``[n]``."""
        count = len(self._nids)
        if self._groups is None and not self._shuffle:
            return torch.arange(count)
        order = epoch_order(self._groups, count, self._scenario.seed, self._rank, epoch)
        return torch.from_numpy(order)

    def _made(self, size: int, fan_out: tuple[int, ...]) -> Any:
        sampler = self._sampler
        if fan_out != self._scenario.fan_out:
            sampler = dgl.dataloading.NeighborSampler(list(fan_out))
        return dgl.dataloading.DistNodeDataLoader(
            self._g, self._nids, sampler, batch_size=size, shuffle=False,
            drop_last=self._drop_last,
        )  # fmt: skip
