"""Runs the producing side of a loader ahead of training, in one background thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")
_POLL_S = 0.1


class Pipeline(Generic[T]):
    """At most ``depth`` items are produced ahead of the one being consumed.

    Items are handed over in order. An exception of the producer is raised in the consumer. Leaving
    the iteration early stops the producer after the item that it is working on.

    Args:
        produce: makes the next item, or returns None at the end; called from one thread only:
            the background thread, or with ``depth`` 0 the consumer's own.
        depth: items ahead; 0 = produce when asked.
    """

    def __init__(self, produce: Callable[[], T | None], depth: int) -> None:
        self._produce = produce
        self._depth = depth

    def __iter__(self) -> Generator[tuple[T, float], None, None]:
        """Yields ``(item, seconds that the consumer waited for it)``; ``close()`` leaves early."""
        return self._inline() if self._depth == 0 else self._ahead()

    def _inline(self) -> Generator[tuple[T, float], None, None]:
        while True:
            start = time.perf_counter()
            item = self._produce()
            if item is None:
                return
            yield item, time.perf_counter() - start

    def _ahead(self) -> Generator[tuple[T, float], None, None]:
        permits = threading.Semaphore(self._depth)
        ready: queue.SimpleQueue[T | BaseException | None] = queue.SimpleQueue()
        stop = threading.Event()

        def work() -> None:
            try:
                while True:
                    while not permits.acquire(timeout=_POLL_S):
                        if stop.is_set():
                            return
                    if stop.is_set():
                        return
                    item = self._produce()
                    ready.put(item)
                    if item is None:
                        return
            except BaseException as error:  # noqa: BLE001 - raised again in the consumer
                ready.put(error)

        worker = threading.Thread(target=work, name="rudder-prefetch", daemon=True)
        worker.start()
        try:
            while True:
                start = time.perf_counter()
                item = ready.get()
                waited = time.perf_counter() - start
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                permits.release()
                yield item, waited
        finally:
            stop.set()
            worker.join()
