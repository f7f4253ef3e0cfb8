"""Run a role's entry function, in a new interpreter or in a process forked from a warm one."""

from __future__ import annotations

import atexit
import builtins
import importlib
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn


def call(entry: str, kwargs: Mapping[str, Any]) -> None:
    """Import ``module:function`` and call it.

    Raises:
        ImportError, AttributeError: there is no such module or function.
    """
    module, _, function = entry.partition(":")
    sys.argv = [entry]
    getattr(importlib.import_module(module), function)(**kwargs)


def run_script(path: str, arguments: Sequence[str] = ()) -> None:
    """An entry that runs a Python script as ``python path arguments`` does, imports kept warm."""
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    main = ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = main
    exec(compile(Path(path).read_bytes(), path, "exec"), main.__dict__)


def settle_libraries() -> None:
    """Redo, in a forked process, what libraries derived from environment and chance at import.

    OpenMP read its thread count when torch was loaded, and generators were seeded then: every role
    forked from one warm process would otherwise draw the same numbers. (Python's own generator
    reseeds itself after a fork.)
    """
    threads = int(os.environ.get("OMP_NUM_THREADS", "1").partition(",")[0])
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
        torch.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    dgl = sys.modules.get("dgl")
    if dgl is not None:
        dgl.utils.set_num_threads(threads)
        dgl.seed(int.from_bytes(os.urandom(3), "little"))


def finish(work: Callable[[], None]) -> NoReturn:
    """Do the work of a forked process and end it, with the status that an interpreter would give.

    Threads are joined and exit handlers run as usual. What is left out is taking the interpreter
    apart: it would copy all the pages shared with the warm process, 0.2 s of CPU time per role with
    torch and dgl loaded.
    """
    status = 0
    try:
        work()
    except SystemExit as left:
        if isinstance(left.code, str):
            sys.stderr.write(f"{left.code}\n")
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException as error:  # noqa: BLE001 - the last handler, as the interpreter's own
        error.__traceback__ = _without_own_frames(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing does in its children
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status & 0xFF)


def _without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is the role's, not that of the process which started it."""
    here = str(Path(__file__).parent)
    own = trace
    while own is not None and str(Path(own.tb_frame.f_code.co_filename).parent) == here:
        own = own.tb_next
    return own or trace


def main(arguments: Sequence[str]) -> None:
    """Call what the one argument, a JSON object, names."""
    task = json.loads(arguments[0])
    call(task["entry"], task["kwargs"])
