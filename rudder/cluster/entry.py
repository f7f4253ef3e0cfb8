"""Run a role's entry function, in a new interpreter or in a process forked from a warm one."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def call(entry: str, kwargs: Mapping[str, Any]) -> None:
    """Import ``module:function`` and call it.

    Raises:
        ImportError, AttributeError: there is no such module or function.
    """
    module, _, function = entry.partition(":")
    sys.argv = [entry]
    getattr(importlib.import_module(module), function)(**kwargs)


def settle_libraries() -> None:
    """Redo, in a forked process, what libraries derived from environment and time at import.

    OpenMP read its thread count when torch was loaded, and numpy's global generator was seeded
    then: every role forked from one warm process would otherwise draw the same numbers. (Python's
    own generator reseeds itself after a fork; torch's default seed is a constant either way.)
    """
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    dgl = sys.modules.get("dgl")
    if dgl is not None:
        dgl.utils.set_num_threads(threads)
        dgl.seed(int.from_bytes(os.urandom(3), "little"))


def main(arguments: Sequence[str]) -> None:
    """Call what the one argument, a JSON object, names."""
    task = json.loads(arguments[0])
    call(task["entry"], task["kwargs"])
