"""Checks of the arrays that the buffer is given."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rudder.errors import BufferUseError
from rudder.policies.base import Ids


def as_ids(ids: npt.NDArray[np.int64], what: str) -> Ids:
    """``ids`` as a contiguous, writable int64 vector; copied only if it is not one.

    Raises:
        BufferUseError: not a vector of whole numbers.
    """
    array = np.asarray(ids)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)):
        raise BufferUseError(
            f"{what} must be int64 [n], found {array.dtype} {list(array.shape)}; node ids are "
            "whole numbers in one dimension"
        )
    # Kernels are compiled for writable C arrays: others would be compiled anew at the first use.
    return np.require(array, np.int64, ["C", "W", "A"])
