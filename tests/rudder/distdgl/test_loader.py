"""The public loader in people's scripts: what they may do with it, on DGL's standalone graph."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

from rudder.distdgl import DistNodeDataLoader
from rudder.errors import TransportError, UsageError
from rudder.home import Home
from rudder.partition import Partition, ensure_partition
from rudder.scenario import Scenario
from rudder.trace import Manifest, Trace, start_partition_trace

NODES, BATCH = 300, 40
MINIBATCHES = 8  # 300 seeds in batches of 40, the last of 20

Make = Callable[..., DistNodeDataLoader]


@pytest.fixture(scope="module")
def partition(engine_home: Home) -> Partition:
    return ensure_partition(
        f"sbm:nodes={NODES},classes=3", 1, "random", 0, engine_home.partitions, lambda *_: None
    )


@pytest.fixture(scope="module")
def graph(partition: Partition) -> Iterator[Any]:
    """One part, no servers: DGL keeps the graph in this process."""
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


def pulls_no_more(loader: DistNodeDataLoader) -> bool:
    before = len(loader.rows)
    time.sleep(0.05)
    return len(loader.rows) == before


def test_a_loop_that_is_left_early_pulls_no_more_and_the_next_is_whole(make: Make) -> None:
    loader = make()
    for _ in loader:
        break
    assert pulls_no_more(loader)
    assert loader.trained == 1
    assert sum(1 for _ in loader) == MINIBATCHES
    assert [step for _, step in steps(loader)] == list(range(len(loader.rows)))
    assert sum(epoch == 1 for epoch, _ in steps(loader)) == MINIBATCHES
    loader.close()


def test_an_exception_in_the_loop_ends_the_pulls(make: Make) -> None:
    loader = make()

    def train() -> None:
        for _ in loader:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert pulls_no_more(loader)
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


def test_a_loader_that_is_dropped_ends_its_threads(make: Make) -> None:
    loader = make()
    assert sum(1 for _ in loader) == MINIBATCHES
    assert threads("rudder-controller") == 1
    del loader
    gc.collect()
    assert threads("rudder-controller") == threads("rudder-prefetch") == 0


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


def test_batch_size_and_fan_out_follow_their_schedules(make: Make) -> None:
    loader = make(epochs=3, batch_size_at={1: 100}, fan_out_at={2: [1, -1]}, shuffle=True)
    assert loader.planned == (8, 3, 3)
    sizes, fans = [], []
    for _ in range(3):
        seen = list(loader)
        assert len(seen) == len(loader)
        sizes.append([len(seeds) for _, seeds, _ in seen])
        fans.append(max(int(blocks[0].in_degrees().max()) for _, _, blocks in seen))
    assert sizes == [[40] * 7 + [20], [100] * 3, [100] * 3]
    assert fans == [2, 2, 1]
    loader.close()


def test_groups_of_seeds_come_in_turn_and_are_shuffled_inside(make: Make) -> None:
    groups = np.arange(NODES, dtype=np.int32) % 3
    loader = make(groups=groups, seed=4)
    epochs = [torch.cat([seeds for _, seeds, _ in loader]).numpy() for _ in range(2)]
    for order in epochs:
        assert groups[order].tolist() == sorted(groups.tolist())
    assert epochs[0].tolist() != epochs[1].tolist()
    loader.close()


def test_a_trace_holds_every_pulled_minibatch_of_loops_that_are_left_early(
    make: Make, partition: Partition, tmp_path: Path
) -> None:
    scenario = Scenario.make(graph="sbm", parts=1, epochs=2)
    start_partition_trace(tmp_path / "t", Manifest.of(scenario, partition, "distdgl"), partition)
    loader = make(trace=tmp_path / "t", epochs=2)
    for number, _ in enumerate(loader):
        if number == 1:
            break
    assert sum(1 for _ in loader) == MINIBATCHES
    loader.close()
    trace = Trace.open(tmp_path / "t")
    assert trace.complete
    for recorded, row in zip(trace.minibatches(0), loader.rows, strict=True):
        for name in ("epoch", "step", "local", "seeds", "sample_s", "compute_s"):
            assert getattr(recorded, name) == getattr(row, name)
        assert recorded.remote_ids.size == row.remote_sampled == 0
    assert trace.facts[0].minibatches == (MINIBATCHES, MINIBATCHES)


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
