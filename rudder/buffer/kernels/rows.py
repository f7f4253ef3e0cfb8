"""Copies of feature rows."""

from __future__ import annotations

from typing import Any

from rudder.buffer.kernels.memory import Ids
from rudder.jit import jit


@jit
def copy_rows(source: Any, source_at: Ids, target: Any, target_at: Ids) -> None:
    """``target[target_at[i]] = source[source_at[i]]`` for rows seen as bytes or as words of 8."""
    width = source.shape[1]
    for i in range(len(source_at)):
        s = source[source_at[i]]
        t = target[target_at[i]]
        for j in range(width):
            t[j] = s[j]
