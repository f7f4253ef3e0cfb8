"""Train, validation and test masks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rudder.errors import DatasetError, UsageError

from .seeds import SPLITS, generator

Bools = npt.NDArray[np.bool_]


class Splits(NamedTuple):
    """Bool masks ``[N]``."""

    train: Bools
    val: Bools
    test: Bools

    def only(self, nodes: Bools) -> Splits:
        """The same without the nodes outside ``nodes``."""
        return Splits(self.train & nodes, self.val & nodes, self.test & nodes)

    @property
    def size(self) -> int:
        """Nodes in any split."""
        return int(np.count_nonzero(self.train | self.val | self.test))


def random_splits(labelled: Bools, train: float, val: float, seed: int) -> Splits:
    """Split the labelled nodes at random; what ``train`` and ``val`` leave is for testing.

    Raises:
        UsageError: shares that are no shares, or a negative seed.
    """
    if not (0 < train <= 1 and 0 <= val < 1 and train + val <= 1):
        raise UsageError(
            f"train={train} and val={val} must be shares of the labelled nodes: 0 < train, "
            "0 <= val, together at most 1"
        )
    nodes = generator(seed, SPLITS).permutation(np.flatnonzero(labelled))
    first, second = round(train * nodes.size), round((train + val) * nodes.size)
    return splits_from_ids(
        nodes[:first], nodes[first:second], nodes[second:], labelled.size, "random splits"
    )


def splits_from_ids(
    train: npt.NDArray[Any], val: npt.NDArray[Any], test: npt.NDArray[Any], nodes: int, where: str
) -> Splits:
    """Masks from lists of node numbers.

    Raises:
        DatasetError: a node outside 0..N-1.
    """
    masks = []
    for name, ids in (("train", train), ("validation", val), ("test", test)):
        if ids.size and (ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= nodes):
            raise DatasetError(
                f"{where}: the {name} split must hold node numbers 0..{nodes - 1}, found "
                f"{ids.min()}..{ids.max()} ({ids.dtype})"
            )
        mask = np.zeros(nodes, dtype=np.bool_)
        mask[ids.astype(np.int64)] = True
        masks.append(mask)
    return Splits(*masks)
