"""What a buffer holds before the first minibatch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
import numpy.typing as npt

from rudder.errors import BufferUseError
from rudder.policies.base import Ids

Kind = Literal["empty", "degree", "random"]


def fill_ids(
    kind: Kind,
    capacity: int,
    halo_ids: Ids,
    degree: npt.NDArray[np.int32],
    other_ids: Ids | None = None,
    seed: int = 0,
) -> Ids:
    """Ids of the initial fill: int64 ``[min(capacity, remote nodes)]`` (``empty``: none).

    Halo nodes come first; only when all of them fit, remote nodes beyond the halo follow.

    Args:
        kind: ``degree``: by degree, highest first, ties by smaller id; ``random``: drawn without
            replacement; ``empty``.
        capacity: slots.
        halo_ids: int64, ascending: remote nodes one hop from the partition.
        degree: ``[N]``, degree of every node by id.
        other_ids: int64, ascending: remote nodes beyond the halo; needed only where the capacity
            exceeds the halo.
        seed: of ``random``.
    """
    if kind == "empty" or capacity == 0:
        return np.empty(0, np.int64)
    if kind not in ("degree", "random"):
        raise BufferUseError(f"no fill is named {kind!r}; there are empty, degree, random")
    rng = np.random.default_rng(seed)
    groups, left = [], capacity
    for ids in (halo_ids, other_ids):
        if ids is None or left == 0:
            continue
        if kind == "degree":
            chosen = _highest(np.asarray(ids, np.int64), degree, left)
        else:
            chosen = rng.permutation(np.asarray(ids, np.int64))[:left]
        groups.append(chosen)
        left -= len(chosen)
    return np.concatenate(groups)


def frequent_ids(samples: Iterable[Ids], capacity: int, otherwise: Ids) -> Ids:
    """Ids of a fill by measured frequency: those that most of the sampled minibatches need.

    Args:
        samples: int64, the distinct remote ids of each sampled minibatch.
        capacity: slots.
        otherwise: distinct ids for the slots that are left over, best first.

    Returns:
        int64, at most ``capacity``: by number of minibatches, ties by smaller id.
    """
    lists = [np.asarray(ids, np.int64) for ids in samples]
    seen, times = np.unique(np.concatenate([np.empty(0, np.int64), *lists]), return_counts=True)
    chosen = seen[np.argsort(-times, kind="stable")][:capacity]
    others = otherwise[~np.isin(otherwise, chosen)]
    return np.concatenate([chosen, others[: capacity - len(chosen)]])


def _highest(ids: Ids, degree: npt.NDArray[np.int32], count: int) -> Ids:
    ids = np.sort(ids)
    keys = -np.asarray(degree)[ids].astype(np.int64)
    if count < len(ids):
        # Sort only what can be chosen: everything up to the count-th degree, ties included.
        near = np.flatnonzero(keys <= np.partition(keys, count - 1)[count - 1])
        ids, keys = ids[near], keys[near]
    return ids[np.argsort(keys, kind="stable")][:count]
