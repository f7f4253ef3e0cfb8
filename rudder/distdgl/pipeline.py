"""Runs the producing side of a loader ahead of training, in one background thread."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")
_POLL_S = 0.1


class Pipeline(Generic[T]):
    """At most ``depth`` items are produced ahead of the one being consumed.

    Items are handed over in order. An exception of the producer is raised in the consumer. Leaving
    the iteration early stops the producer after the item that it is working on. All iterations
    share one thread, whatever the depth: DGL draws by a thread's number, and what is drawn must
    depend neither on how many epochs there were before nor on how far ahead it is drawn.

    Args:
        produce: makes the next item, or returns None at the end; called from that thread only.
        depth: items ahead; 0 = produce when asked, while the consumer waits.
    """

    def __init__(self, produce: Callable[[], T | None], depth: int) -> None:
        self._produce = produce
        self._depth = depth
        self._worker = _Worker("rudder-prefetch")
        # At exit a thread may hang in a request that nobody answers any more.
        weakref.finalize(self, self._worker.close).atexit = False

    def __iter__(self) -> Generator[tuple[T, float], None, None]:
        """Yields ``(item, seconds that the consumer waited for it)``; ``close()`` leaves early."""
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

        ended = self._worker.run(work)
        try:
            while True:
                start = time.perf_counter()
                if self._depth == 0:  # only now
                    permits.release()
                item = ready.get()
                waited = time.perf_counter() - start
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                if self._depth:
                    permits.release()
                yield item, waited
        finally:
            stop.set()
            ended.wait()

    def close(self) -> None:
        """End the thread, once no iteration is going on. Safe to call twice."""
        self._worker.close()


_Job = tuple[Callable[[], None], threading.Event]


class _Worker:
    """One daemon thread, started when it is first needed, that does one job after another."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, job: Callable[[], None]) -> threading.Event:
        """Have a job done that raises nothing; the event is set when it is."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=_serve, args=(self._jobs,), name=self._name, daemon=True
            )
            self._thread.start()
        ended = threading.Event()
        self._jobs.put((job, ended))
        return ended

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            if thread is not threading.current_thread():  # where garbage is collected
                thread.join()


def _serve(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while (given := jobs.get()) is not None:
        job, ended = given
        job()
        del given, job  # nothing is kept alive by a thread that rests
        ended.set()
