"""Compiling kernels with numba, machine code kept on disk where a folder can be written."""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

_F = TypeVar("_F", bound=Callable[..., Any])
_log = logging.getLogger(__name__)
_uncached: list[str] = []


def jit(function: _F) -> _F:
    """Compile at the first call; without the GIL, cached on disk.

    A kernel may call kernels and use constants of its own folder's other modules: when any of them
    changes, the folder's kernels are compiled anew.
    """
    try:
        kernel: Any = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError as error:  # numba found no folder that it may write to
        if not _uncached:
            _log.warning("kernels are compiled anew in each process: %s", error)
        _uncached.append(function.__name__)
        return cast(_F, numba.njit(nogil=True)(function))
    # Machine code contains what it calls, but numba asks for the function's own file only: after a
    # change of another module it would load code that no longer fits the others.
    index = kernel._cache._cache_file
    index._source_stamp = (index._source_stamp, _sources(Path(inspect.getfile(function)).parent))
    return cast(_F, kernel)


@lru_cache
def _sources(folder: Path) -> bytes:
    """Hash of a folder's modules."""
    found = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        code = file.read_bytes()
        found.update(f"{file.name} {len(code)} ".encode() + code)
    return found.digest()
