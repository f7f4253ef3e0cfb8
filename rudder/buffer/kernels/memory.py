"""What the kernels share: types, inlining, and hints of which memory will be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BLOCK = 256
"""Nodes that are looked up and updated together: their records fit the inner cache."""
AHEAD = 16
"""Turns of a loop between the hint that memory will be read and the reading. Records lie all over
the memory, so that a minibatch is a hundred thousand waits for it, or a few if they overlap."""

_F = TypeVar("_F", bound=Callable[..., Any])


def inline(function: _F) -> _F:
    """For helpers of a few instructions: as calls they cost a fifth of a minibatch's time."""
    return cast(_F, numba.njit(inline="always")(function))


def _hint_code(context: Any, array: Any, row: Any) -> Any:
    """Row ``row`` of a C-ordered array will be read soon: fetch its first cache line.

    LLVM's ``prefetch``: it changes nothing and fails never, so that any row number will do.
    """

    def code(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        found = target.make_array(kind)(target, builder, arguments[0])
        stride = cgutils.unpack_tuple(builder, found.strides)[0]
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        start = builder.bitcast(found.data, byte)
        address = builder.gep(start, [builder.mul(arguments[1], stride)])
        prefetch = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        )
        # To read (0), to be kept in every cache (3), data (1).
        builder.call(prefetch, [address, word(0), word(3), word(1)])
        return target.get_dummy_value()

    return types.void(array, types.intp), code


hint: Any = intrinsic(_hint_code)
