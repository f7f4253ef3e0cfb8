"""Which training nodes a trainer has and in which order an epoch takes them, in every engine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rudder.partition import Partition
from rudder.sampling import Ids
from rudder.scenario import Scenario

Groups = npt.NDArray[np.int32]


def split_evenly(train: Ids, parts: int, trainers: int) -> list[Ids]:
    """Training nodes of each rank, dealt as ``dgl.distributed.node_split`` does (``force_even``).

    Args:
        train: int64, ascending: global ids of all training nodes.
        trainers: per part.
    """
    ranks: list[Ids] = []
    for part, mine in enumerate(np.array_split(train, parts)):
        if trainers == 1:
            ranks.append(mine)
            continue
        # DGL draws who gets what from the legacy generator, seeded with the part's number.
        order = np.random.RandomState(part).permutation(mine.size)
        ranks.extend(mine[np.sort(chosen)] for chosen in np.array_split(order, trainers))
    return ranks


def seed_groups(scenario: Scenario, partition: Partition, part: int, seeds: Ids) -> Groups | None:
    """The group of each seed, int32 ``[n]``: an epoch takes group 0 first. None = no groups.

    ``communities``: those of the part (:func:`rudder.partition_graph.communities`); seeds that
    another part owns (training nodes are dealt evenly) come in the last group. ``degree``: bands of
    equal size from the highest degree down, ties by smaller id.

    Raises:
        ScenarioError: more communities than the part has nodes.
    """
    if scenario.seed_order == "uniform":
        return None
    groups = np.full(seeds.size, scenario.phases - 1, np.int32)
    if scenario.seed_order == "degree":
        degree = np.asarray(partition.degree()[seeds], np.int64)
        for band, places in enumerate(
            np.array_split(np.lexsort((seeds, -degree)), scenario.phases)
        ):
            groups[places] = band
        return groups
    from rudder.partition_graph import communities

    first = sum(partition.part_nodes[:part])
    inside = (seeds >= first) & (seeds < first + partition.part_nodes[part])
    found = communities(partition, part, scenario.phases)
    groups[inside] = found[seeds[inside] - first]
    return groups


def epoch_order(groups: Groups | None, count: int, seed: int, rank: int, epoch: int) -> Ids:
    """The places of ``count`` seeds in an epoch's order: shuffled, group by group. Repeatable."""
    drawn = np.random.default_rng([seed, rank, epoch]).random(count)
    order: Ids = np.lexsort((drawn,) if groups is None else (drawn, groups))
    return order


def minibatches(scenario: Scenario, seeds: int) -> tuple[int, ...]:
    """Minibatches in each epoch of a trainer with so many training nodes."""
    return tuple(-(-seeds // scenario.batch_size_of(e)) for e in range(scenario.epochs))
