"""The public loader in people's scripts: what they may do with it, on DGL's standalone graph."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import dgl
import pytest
import torch

from rudder.distdgl import DistNodeDataLoader
from rudder.errors import TransportError, UsageError
from rudder.home import Home
from rudder.partition import ensure_partition

NODES, BATCH = 300, 40
MINIBATCHES = 8  # 300 seeds in batches of 40, the last of 20

Make = Callable[..., DistNodeDataLoader]


@pytest.fixture(scope="module")
def graph(engine_home: Home) -> Iterator[Any]:
    """One part, no servers: DGL keeps the graph in this process."""
    partition = ensure_partition(
        f"sbm:nodes={NODES},classes=3", 1, "random", 0, engine_home.partitions, lambda *_: None
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DGL_DIST_MODE", "standalone")
        dgl.distributed.initialize("")
        yield dgl.distributed.DistGraph(partition.graph_name, part_config=str(partition.config))


@pytest.fixture(params=[0, 2], ids=["inline", "ahead"])
def make(graph: Any, request: pytest.FixtureRequest) -> Make:
    def build(nids: torch.Tensor | None = None, **options: Any) -> DistNodeDataLoader:
        seeds = torch.arange(NODES) if nids is None else nids
        sampler = options.pop("sampler", dgl.dataloading.NeighborSampler([2, 2]))
        options = {"batch_size": BATCH, "prefetch_depth": request.param, **options}
        return DistNodeDataLoader(graph, seeds, sampler, **options)

    return build


def threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def steps(loader: DistNodeDataLoader) -> list[tuple[int, int]]:
    return [(row.epoch, row.step) for row in loader.rows]


def test_features_and_labels_are_those_of_the_graph(graph: Any, make: Make) -> None:
    loader = make(shuffle=True)
    seen = []
    for input_nodes, seeds, blocks in loader:
        assert torch.equal(blocks[0].srcdata["feat"], graph.ndata["feat"][input_nodes])
        assert torch.equal(blocks[-1].dstdata["label"], graph.ndata["label"][seeds])
        seen.append(seeds)
    assert torch.equal(torch.cat(seen).sort().values, torch.arange(NODES))
    assert len(seen) == len(loader) == MINIBATCHES
    loader.close()


def test_a_loop_that_is_left_early_ends_its_thread_and_the_next_is_whole(make: Make) -> None:
    loader = make()
    for _ in loader:
        break
    assert threads("rudder-prefetch") == 0
    assert loader.trained == 1
    assert sum(1 for _ in loader) == MINIBATCHES
    assert [step for _, step in steps(loader)] == list(range(len(loader.rows)))
    assert sum(epoch == 1 for epoch, _ in steps(loader)) == MINIBATCHES
    loader.close()


def test_an_exception_in_the_loop_ends_its_thread(make: Make) -> None:
    loader = make()

    def train() -> None:
        for _ in loader:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert threads("rudder-prefetch") == 0
    loader.close()


def test_a_first_look_does_not_disturb_the_loop_after_it(make: Make) -> None:
    """``next(iter(loader))`` for the shapes, and the iterator is still held."""
    loader = make()
    held = iter(loader)
    next(held)
    assert sum(1 for _ in loader) == MINIBATCHES
    assert [row for row in loader.rows if row.epoch == 1 and row.compute_s == 0.0] == []
    assert list(held) == []
    assert loader.trained == 1 + MINIBATCHES
    loader.close()


def test_letting_go_of_an_old_iterator_ends_no_row_of_the_new_loop(make: Make) -> None:
    loader = make()
    held = iter(loader)
    next(held)
    new = iter(loader)
    next(new)
    before = loader.trained
    del held
    gc.collect()
    assert loader.trained == before
    assert sum(1 for _ in new) == MINIBATCHES - 1
    loader.close()


def test_close_ends_all_and_the_loader_cannot_be_iterated_again(make: Make) -> None:
    loader = make()
    next(iter(loader))
    tally = loader.close()
    assert threads("rudder-prefetch") == threads("rudder-controller") == 0
    assert loader.close() is tally
    with pytest.raises(UsageError, match="closed"):
        iter(loader)


def test_a_loader_that_is_dropped_ends_its_controller(make: Make) -> None:
    loader = make()
    assert sum(1 for _ in loader) == MINIBATCHES
    assert threads("rudder-controller") == 1
    del loader
    gc.collect()
    assert threads("rudder-controller") == 0


@pytest.mark.parametrize(
    ("seeds", "options", "sizes"),
    [
        (100, {"drop_last": True}, [40, 40]),
        (100, {"batch_size": 1000}, [100]),
        (30, {"drop_last": True}, []),
        (0, {}, []),
    ],
)
def test_uneven_splits(make: Make, seeds: int, options: dict[str, Any], sizes: list[int]) -> None:
    loader = make(torch.arange(seeds), **options)
    assert [len(s) for _, s, _ in loader] == sizes
    assert [row.seeds for row in loader.rows] == sizes
    loader.close()


@pytest.mark.parametrize("what", ["features", "labels"])
def test_node_data_that_is_missing_is_told_with_what_is_there(make: Make, what: str) -> None:
    with pytest.raises(TransportError, match=r"no node data 'colour'; it has .*feat.*label"):
        make(**{what: "colour"})


def test_labels_are_left_out_on_request(make: Make) -> None:
    loader = make(labels=None)
    _, _, blocks = next(iter(loader))
    assert "label" not in blocks[-1].dstdata
    loader.close()


def test_an_error_while_sampling_reaches_the_loop(make: Make) -> None:
    class Failing(dgl.dataloading.NeighborSampler):  # type: ignore[misc]
        def sample_blocks(self, *args: Any, **kwargs: Any) -> Any:
            raise ConnectionError("server 1 is gone")

    loader = make(sampler=Failing([2, 2]))
    with pytest.raises(ConnectionError, match="server 1"):
        list(loader)
    loader.close()
