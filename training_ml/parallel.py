"""Work in processes that end with the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import TypeVar

from rudder.errors import CollectionError
from rudder.plugins import PluginFile, load_files

_Task = TypeVar("_Task")


def each(
    work: Callable[[_Task], None],
    tasks: Sequence[_Task],
    jobs: int,
    plugins: Sequence[PluginFile],
    done: Callable[[], None],
) -> None:
    """Do every task, ``jobs`` at a time, in any order.

    Args:
        work: of a module, so that other processes find it.
        tasks: can be pickled.
        jobs: processes; 1 = here.
        plugins: loaded by every process.
        done: called after each task.

    Raises:
        RudderError: the first one that a task raised; those that had not begun are left out.
        CollectionError: a process was killed.
    """
    if jobs == 1 or len(tasks) < 2:
        for task in tasks:
            work(task)
            done()
        return
    # A fresh interpreter each: threads of numerical libraries do not survive a fork.
    context = multiprocessing.get_context("spawn")
    jobs = min(jobs, len(tasks))
    with ProcessPoolExecutor(jobs, context, _begin) as pool:
        try:
            for future in as_completed([pool.submit(_do, work, task, plugins) for task in tasks]):
                future.result()
                done()
        except BrokenProcessPool as error:
            raise CollectionError(
                "a process that collected was killed, perhaps for want of memory. What is "
                "finished stays: run the same command again, with --jobs 1 if memory is short"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _do(work: Callable[[_Task], None], task: _Task, plugins: Sequence[PluginFile]) -> None:
    load_files(plugins)
    work(task)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and says so
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """A pool's processes would wait for work for ever once their parent was killed."""
    wait([sentinel])
    os._exit(1)
