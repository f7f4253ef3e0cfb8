"""Sampling ahead of the pulls: which minibatches are drawn when, and what is dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dgl
import pytest
import torch

from rudder.distdgl.sampler import Sampler, memory_of, presampled

Log = list[tuple[str, Any]]


class FakeEpochs:
    """Minibatch k of epoch e is [100 * e + k]."""

    def __init__(self, per_epoch: int, log: Log) -> None:
        self.per_epoch, self.log = per_epoch, log

    def minibatches(self, epoch: int) -> int:
        return self.per_epoch

    def key(self, epoch: int) -> tuple[int, int, int]:
        return 0, 0, epoch

    def begin(self, epoch: int, order: int | None = None) -> Iterator[Any]:
        self.log.append(("begin", epoch if order is None else order))
        block = dgl.create_block(([0], [0]))
        for k in range(self.per_epoch):
            nodes = torch.tensor([100 * epoch + k])
            block.srcdata[dgl.NID] = nodes
            yield nodes, nodes, [block]


class FakeFeatures:
    def __init__(self, log: Log) -> None:
        self.log = log

    def locate(self, ids: torch.Tensor) -> Any:
        return ids

    def announce(self, wanted: torch.Tensor) -> None:
        self.log.append(("announce", int(wanted)))

    def withdraw(self) -> None:
        self.log.append(("withdraw", None))


def made(planned: Sequence[int], window: int, last: int) -> tuple[Sampler, Log]:
    log: Log = []
    epochs: Any = FakeEpochs(max(planned), log)
    features: Any = FakeFeatures(log)
    return Sampler(epochs, planned, features, window, last), log


def handed(sampler: Sampler) -> Iterator[tuple[int, int]]:
    while (sampled := sampler.next()) is not None:
        yield sampled.epoch, int(sampled.minibatch[0])


def announced(log: Log) -> list[int]:
    return [value for what, value in log if what == "announce"]


@pytest.mark.parametrize("window", [0, 1, 2, 5, 40])
@pytest.mark.parametrize("last", [-1, 3])
def test_the_order_does_not_depend_on_the_window(window: int, last: int) -> None:
    planned = (3, 1, 4, 2)
    sampler, log = made(planned, window, last)
    for epoch, count in enumerate(planned):
        sampler.begin(epoch)
        assert list(handed(sampler)) == [(epoch, 100 * epoch + k) for k in range(count)]
    assert announced(log) == [100 * e + k for e, count in enumerate(planned) for k in range(count)]
    assert [value for what, value in log if what == "begin"] == [0, 1, 2, 3]


def test_sampling_stays_a_window_ahead_and_crosses_into_epochs_that_will_come() -> None:
    sampler, log = made((3, 3), window=2, last=1)
    sampler.begin(0)
    ahead = []
    for epoch in (0, 1):
        if epoch:
            sampler.begin(epoch)
        for _ in handed(sampler):
            ahead.append(len(announced(log)))
    assert ahead == [3, 4, 5, 6, 6, 6]


def test_sampling_ends_with_the_epoch_if_no_other_is_known_to_come() -> None:
    sampler, log = made((3,), window=2, last=-1)
    for epoch in (0, 1):
        sampler.begin(epoch)
        ahead = [len(announced(log)) for _ in handed(sampler)]
        assert ahead == [3 * epoch + 3] * 3


def test_what_is_left_of_an_epoch_is_dropped_and_withdrawn() -> None:
    sampler, log = made((4, 4), window=3, last=1)
    sampler.begin(0)
    for _ in range(2):  # 0 and 1; up to minibatch 0 of epoch 1 is sampled ahead
        sampler.next()
    assert announced(log) == [0, 1, 2, 3, 100]
    log.clear()
    sampler.begin(1)
    assert log[0] == ("withdraw", None)
    assert list(handed(sampler)) == [(1, 100 + k) for k in range(4)]
    assert announced(log) == [100, 101, 102, 103]


def test_an_epoch_that_is_begun_anew_starts_over() -> None:
    sampler, _ = made((2, 2, 2), window=2, last=2)
    sampler.begin(0)
    assert len(list(handed(sampler))) == 2
    sampler.begin(1)
    sampler.next()
    sampler.begin(2)
    assert list(handed(sampler)) == [(2, 200), (2, 201)]


def test_memory_ahead_is_that_of_the_minibatches_held_at_most() -> None:
    one = memory_of((torch.tensor([5]), torch.tensor([5]), [dgl.create_block(([0], [0]))]))
    # Two lists of one id, and an edge of two ends, 8 bytes each.
    assert one == 8 + 8 + 2 * 8
    for window, most in ((0, 0), (1, 1), (3, 3), (9, 4)):
        sampler, _ = made((5,), window, -1)
        sampler.begin(0)
        list(handed(sampler))
        nodes_shared = one - 8  # input nodes and seeds are one tensor here
        assert sampler.ahead_bytes == most * nodes_shared


def test_presampling_takes_orders_of_its_own_and_as_many_epochs_as_it_needs() -> None:
    log: Log = []
    epochs: Any = FakeEpochs(3, log)
    assert [int(nodes) for nodes in presampled(epochs, 7)] == [0, 1, 2, 0, 1, 2, 0]
    orders = [value for _, value in log]
    assert orders == sorted(set(orders))
    assert len(orders) == 3
    assert min(orders) >= 2**31
    empty: Any = FakeEpochs(0, log)
    assert list(presampled(empty, 3)) == []
