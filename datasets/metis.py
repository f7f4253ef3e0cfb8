"""``python -m rudder_datasets.metis PARTS SEED PARENT``: METIS in a process of its own.

Reads ``src.npy``, ``dst.npy`` and ``train.npy`` of the working directory and writes
``assignment.npy`` (int32 ``[N]``). See :func:`rudder_datasets.partition_assign.metis_assignment`.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from rudder.cluster.namespaces import die_with_parent
from rudder.partition_graph import assigned


def main(parts: int, seed: int, parent: int) -> None:
    # METIS can take hours and does not look at signals of its own: end with whoever asked.
    die_with_parent()
    if os.getppid() != parent:
        raise SystemExit("the process that asked for the partition is gone")
    import dgl
    import torch

    train = np.load("train.npy", allow_pickle=False)
    new = np.random.default_rng(seed).permutation(train.size)
    ends = [torch.from_numpy(new[np.load(f"{end}.npy", mmap_mode="r")]) for end in ("src", "dst")]
    kinds = np.empty(train.size, np.int64)
    kinds[new] = train
    graph = dgl.graph((ends[0], ends[1]), num_nodes=train.size)
    found = assigned(graph, parts, balance_ntypes=torch.from_numpy(kinds))
    if found is None:
        raise SystemExit("METIS returned no assignment")
    np.save("assignment.npy", found.numpy()[new].astype(np.int32))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
