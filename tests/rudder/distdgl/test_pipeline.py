from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rudder.distdgl.pipeline import Pipeline


def counting(total: int) -> Callable[[], int | None]:
    numbers = iter(range(total))
    return lambda: next(numbers, None)


@given(total=st.integers(0, 20), depth=st.integers(0, 5))
def test_every_item_in_order_at_any_depth(total: int, depth: int) -> None:
    assert [item for item, _ in Pipeline(counting(total), depth)] == list(range(total))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_never_more_than_depth_ahead_of_the_consumer(depth: int) -> None:
    made = 0

    def produce() -> int | None:
        nonlocal made
        if made == 12:
            return None
        made += 1
        return made - 1

    ahead = []
    for item, _ in Pipeline(produce, depth):
        time.sleep(0.01)  # long enough for the producer to run as far as it may
        ahead.append(made - 1 - item)
    assert max(ahead) == depth
    assert all(a <= depth for a in ahead)


def test_depth_0_produces_when_asked() -> None:
    made = 0

    def produce() -> int | None:
        nonlocal made
        made += 1
        return made if made <= 3 else None

    for item, _ in Pipeline(produce, 0):
        time.sleep(0.01)  # long enough for a producer that would not wait
        assert made == item


@pytest.mark.parametrize("depth", [0, 2])
def test_one_thread_produces_in_all_iterations(depth: int) -> None:
    threads: set[int] = set()
    numbers = iter([1, 2, None, 3, None])

    def produce() -> int | None:
        threads.add(threading.get_ident())
        return next(numbers)

    pipeline = Pipeline(produce, depth)
    assert [[item for item, _ in pipeline] for _ in range(2)] == [[1, 2], [3]]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("depth", [0, 2])
def test_an_error_of_the_producer_reaches_the_consumer(depth: int) -> None:
    def produce() -> int | None:
        raise ConnectionError("server 2 is gone")

    with pytest.raises(ConnectionError, match="server 2"):
        list(Pipeline(produce, depth))


def test_items_before_an_error_are_delivered() -> None:
    numbers = iter([1, 2])

    def produce() -> int | None:
        number = next(numbers, None)
        if number is None:
            raise ValueError("third")
        return number

    items = iter(Pipeline(produce, 2))
    assert [next(items)[0], next(items)[0]] == [1, 2]
    with pytest.raises(ValueError, match="third"):
        next(items)


def test_leaving_early_stops_the_producer_and_closing_ends_its_thread() -> None:
    produced, before = counting(1000), set(threading.enumerate())
    pipeline = Pipeline(produced, 2)
    for item, _ in pipeline:
        if item == 3:
            break
    following = produced()
    time.sleep(0.05)
    assert following is not None
    assert produced() == following + 1
    assert len(set(threading.enumerate()) - before) == 1
    pipeline.close()
    assert set(threading.enumerate()) <= before


def test_all_iterations_share_one_thread() -> None:
    """DGL draws by a thread's number."""
    threads = []

    def produce() -> int | None:
        threads.append(threading.get_ident())
        return None if len(threads) % 3 == 0 else 1

    pipeline = Pipeline(produce, 1)
    assert [len(list(pipeline)) for _ in range(4)] == [2] * 4
    assert len(set(threads)) == 1
    assert threading.get_ident() not in threads
    pipeline.close()


def test_a_pipeline_that_is_dropped_ends_its_thread() -> None:
    before = set(threading.enumerate())
    pipeline = Pipeline(counting(3), 2)
    assert len(list(pipeline)) == 3
    del pipeline
    gc.collect()
    assert set(threading.enumerate()) <= before


def test_the_wait_of_the_consumer_is_measured() -> None:
    def slow() -> int | None:
        time.sleep(0.02)
        return 1

    _, waited = next(iter(Pipeline(slow, 0)))
    assert waited >= 0.02
