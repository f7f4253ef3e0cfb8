"""Compiling kernels with numba, machine code kept on disk where a folder can be written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_F = TypeVar("_F", bound=Callable[..., Any])
_log = logging.getLogger(__name__)
_uncached: list[str] = []


def jit(function: _F) -> _F:
    """Compile at the first call; without the GIL, cached on disk."""
    try:
        return cast(_F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError as error:  # numba found no folder that it may write to
        if not _uncached:
            _log.warning("kernels are compiled anew in each process: %s", error)
        _uncached.append(function.__name__)
        return cast(_F, numba.njit(nogil=True)(function))
