"""Work in processes that end with the one that started them."""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Literal, TypeVar

from rudder.errors import WorkerError
from rudder.plugins import PluginFile, load_files

END_TIMEOUT_S = 10.0
"""Seconds that a process without work has to end by itself."""
_Task = TypeVar("_Task")
Tell = Callable[[Any], None]
"""Sends a plain value to the process that gave the task."""


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
        WorkerError: a process was killed.
    """
    if jobs == 1 or len(tasks) < 2:
        for task in tasks:
            work(task)
            done()
        return

    def lost(task: _Task, code: int | None) -> None:
        raise WorkerError(
            f"a process at work was killed ({exit_words(code)}), perhaps for want of memory. What "
            "is finished stays: run the same command again, with --jobs 1 if memory is short"
        )

    stream(_Quiet(work), tasks, jobs, plugins, lambda task, event: None, lost, lambda task: done())


class _Quiet(Generic[_Task]):
    """Work that tells nothing on its way; a class, so that it can be pickled."""

    def __init__(self, work: Callable[[_Task], None]) -> None:
        self._work = work

    def __call__(self, task: _Task, tell: Tell) -> None:
        self._work(task)


def stream(
    work: Callable[[_Task, Tell], None],
    tasks: Sequence[_Task],
    jobs: int,
    plugins: Sequence[PluginFile],
    heard: Callable[[_Task, Any], None],
    lost: Callable[[_Task, int | None], _Task | None],
    done: Callable[[_Task], None] = lambda task: None,
) -> None:
    """Do every task in ``jobs`` other processes, begun in order; hear of each on its way.

    Args:
        work: of a module; it may tell plain values while it works.
        tasks, plugins: as for :func:`each`.
        heard: called with a task and what its work tells.
        lost: called with a task whose process died, and its exit code (below 0: a signal's
            number). What it returns is done next, by a new process.
        done: called with a task that has ended well.

    Raises:
        RudderError: the first one that a task raised; the others are ended.
    """
    waiting = deque(tasks)
    workers: list[_Worker[_Task]] = []
    try:
        while True:
            while waiting and sum(worker.busy for worker in workers) < jobs:
                idle = next((worker for worker in workers if not worker.busy), None)
                if idle is None:
                    workers.append(idle := _Worker(work, plugins))
                idle.begin(waiting.popleft())
            busy = {worker.pipe: worker for worker in workers if worker.busy}
            if not busy:
                break
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                task = worker.task
                kind, value = worker.hear()
                if kind == "told":
                    heard(task, value)
                elif kind == "done":
                    done(task)
                elif kind == "raised":
                    raise value
                else:
                    workers.remove(worker)
                    again = lost(task, value)
                    if again is not None:
                        waiting.appendleft(again)
    except BaseException:
        for worker in workers:
            worker.process.kill()
        raise
    finally:
        for worker in workers:
            worker.end()


class _Worker(Generic[_Task]):
    """One process, and the task that it is at."""

    task: _Task

    def __init__(self, work: Callable[[_Task, Tell], None], plugins: Sequence[PluginFile]) -> None:
        # A fresh interpreter: threads of numerical libraries do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, tuple(plugins)))
        self.process.start()
        theirs.close()  # so that its death ends what we read
        self.work, self.busy = work, False

    def begin(self, task: _Task) -> None:
        self.busy, self.task = True, task
        with suppress(OSError):  # it has died: the next reading says so
            self.pipe.send((self.work, task))

    def hear(self) -> tuple[Literal["told", "done", "raised", "died"], Any]:
        """What it says next; ``died`` with its exit code."""
        try:
            kind, value = self.pipe.recv()
        except (EOFError, OSError):
            self.end()
            return "died", self.process.exitcode
        if kind != "told":
            self.busy = False
        return kind, value

    def end(self) -> None:
        self.pipe.close()  # it waits for work, and hears that there will be none
        self.process.join(END_TIMEOUT_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def exit_words(code: int | None) -> str:
    """An exit code as people know it: ``SIGKILL``, ``exit code 3``."""
    if code is not None and code < 0:
        with suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def _serve(pipe: Connection, plugins: Sequence[PluginFile]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and says so
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    try:
        load_files(plugins)  # first: what is sent may be made of them
        while True:
            work, task = pipe.recv()
            work(task, lambda value: pipe.send(("told", value)))
            pipe.send(("done", None))
    except EOFError:
        return
    except Exception as error:  # noqa: BLE001 - raised again by who gave the task
        _raise_there(pipe, error)


def _raise_there(pipe: Connection, error: Exception) -> None:
    """Send the error, or its words if it does not survive the journey."""
    try:
        copy.copy(error)  # made anew of what it holds, as it will be at the other end
        pipe.send(("raised", error))
    except Exception:  # noqa: BLE001 - whatever its class makes of it
        pipe.send(("raised", WorkerError(f"{type(error).__name__}: {error}")))


def _end_with(sentinel: int) -> None:
    """It would wait for work for ever once its parent was killed."""
    wait([sentinel])
    os._exit(1)
