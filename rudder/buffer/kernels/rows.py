"""Copies of feature rows, which lie anywhere in memory.

Writing a row the plain way first reads the memory that it overwrites. Many rows are written past
the caches instead: they would not fit in there until somebody reads them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rudder.buffer.kernels.memory import Ids, hint
from rudder.jit import jit

_WORDS = 8
"""Words of 8 bytes in a cache line."""
_ROWS_AHEAD = 4
"""Rows between the hint that one will be read and the reading."""


def _put_line_code(
    context: Any, target: Any, row: Any, source: Any, from_row: Any, word: Any
) -> Any:
    """Copy 8 words of a row, from ``word`` on, past the caches; there the target's line starts."""

    def code(machine: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line = ir.VectorType(ir.IntType(64), _WORDS)

        def address(which: int, row: Any) -> Any:
            kind = signature.args[which]
            found = machine.make_array(kind)(machine, builder, arguments[which])
            strides = cgutils.unpack_tuple(builder, found.strides)
            offset = builder.add(
                builder.mul(row, strides[0]), builder.mul(arguments[4], strides[1])
            )
            start = builder.bitcast(found.data, ir.IntType(8).as_pointer())
            return builder.bitcast(builder.gep(start, [offset]), line.as_pointer())

        value = builder.load(address(2, arguments[3]), align=8)
        store = builder.store(value, address(0, arguments[1]), align=64)
        once = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        store.set_metadata("nontemporal", once)
        return machine.get_dummy_value()

    number = types.intp
    return types.void(target, number, source, number, number), code


def _settle_code(context: Any) -> Any:
    """What was written past the caches is there for every thread before anything that follows."""

    def code(machine: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return machine.get_dummy_value()

    return types.void(), code


_put_line: Any = intrinsic(_put_line_code)
_settle: Any = intrinsic(_settle_code)


@jit
def copy_rows(source: Any, source_at: Ids, target: Any, target_at: Ids) -> None:
    """``target[target_at[i]] = source[source_at[i]]`` for rows seen as bytes or as words of 8."""
    width = source.shape[1]
    for i in range(len(source_at)):
        s = source[source_at[i]]
        t = target[target_at[i]]
        for j in range(width):
            t[j] = s[j]


@jit
def stream_rows(source: Any, source_at: Ids, target: Any, target_at: Ids) -> None:
    """The same for rows of words and past the caches."""
    width = source.shape[1]
    start = target.ctypes.data // 8  # in words: a line starts at every eighth
    lines = source.reshape(-1, 1)
    for i in range(len(source_at)):
        coming = source_at[min(i + _ROWS_AHEAD, len(source_at) - 1)] * width
        for j in range(0, width, _WORDS):
            hint(lines, coming + j)
        s, t = source_at[i], target_at[i]
        at = min(-(start + t * width) % _WORDS, width)
        for j in range(at):
            target[t, j] = source[s, j]
        while at + _WORDS <= width:
            _put_line(target, t, source, s, at)
            at += _WORDS
        for j in range(at, width):
            target[t, j] = source[s, j]
    _settle()
