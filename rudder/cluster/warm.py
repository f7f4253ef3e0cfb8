"""The warm process: imports heavy modules once, then forks every role that is a function."""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rudder.cluster import channel
from rudder.cluster.forker import Forker, HostNamespaces

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "DGLBACKEND": "pytorch",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""What the imports must see, or they start threads; a fork copies only the thread that calls it.

(Arrow's allocator starts one while it is loaded; pandas loads Arrow, and dgl pandas.)
"""

_SECONDS_FOR_THREADS = 5.0
"""How long threads that an import started may take to end by themselves.

(One library that dgl pulls in asks the network for newer versions, which fails at once here.)
"""


def serve(
    control: socket.socket, hosts: Sequence[HostNamespaces], modules: Sequence[str]
) -> Callable[[], None] | None:
    """Import the modules, tell the launcher, and fork roles until it is gone.

    Returns:
        As :meth:`Forker.serve`: in a forked child, what it has to do.
    """
    os.environ.update(ENVIRONMENT)
    start = time.monotonic()
    for module in modules:
        problem = _import(module)
        if problem is not None:
            channel.send(control, {"event": "failed", "message": problem})
            sys.exit(1)
    gc.collect()
    gc.freeze()  # or the first collection in each child would copy all these pages
    channel.send(control, {"event": "warm", "seconds": time.monotonic() - start})
    return Forker(control, hosts).serve()


def _import(module: str) -> str | None:
    """Import one module; what went wrong, if anything."""
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - whatever it raises is passed on by name
        return f"the warm process cannot import {module!r}: {type(error).__name__}: {error}"
    deadline = time.monotonic() + _SECONDS_FOR_THREADS
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))
    left = _other_threads(deadline)
    if left:
        return (
            f"importing {module!r} in the warm process left threads running ({', '.join(left)}), "
            "which a forked role would lack; leave it out of preload"
        )
    return None


def _other_threads(deadline: float) -> list[str]:
    """Names of this process's other threads; the kernel needs a moment to forget ended ones."""
    own = str(threading.get_native_id())
    while True:
        others = [task for task in os.listdir("/proc/self/task") if task != own]
        if not others or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    names = []
    for task in others:
        path = Path(f"/proc/self/task/{task}/comm")
        names.append(path.read_text().strip() if path.exists() else task)
    return names
