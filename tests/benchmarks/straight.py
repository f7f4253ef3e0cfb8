"""Plain DistDGL, straight: DGL's loader, ``g.ndata[...]``, DDP. Nothing of Rudder is imported.

Run by bench_plain.py under ``rudder launch``; does the same work as Rudder's own trainer.
"""

import argparse
import json
import time

import dgl
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class SAGE(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                dgl.nn.SAGEConv(inputs, hidden, "mean"),
                dgl.nn.SAGEConv(hidden, classes, "mean"),
            ]
        )

    def forward(self, blocks, x):
        x = F.dropout(F.relu(self.layers[0](blocks[0], x)), 0.5, self.training)
        return self.layers[1](blocks[1], x)


def main():
    parser = argparse.ArgumentParser()
    for name in ("ip_config", "part_config", "graph_name", "out"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("batch_size", "epochs", "classes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()

    dgl.distributed.initialize(args.ip_config)
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    g = dgl.distributed.DistGraph(args.graph_name, part_config=args.part_config)
    nids = dgl.distributed.node_split(
        g.ndata["train_mask"], g.get_partition_book(), force_even=True
    )
    loader = dgl.dataloading.DistNodeDataLoader(
        g, nids, dgl.dataloading.NeighborSampler([10, 25]), batch_size=args.batch_size, shuffle=True
    )
    fewest = torch.tensor(loader.expected_idxs)
    dist.all_reduce(fewest, op=dist.ReduceOp.MIN)
    model = nn.parallel.DistributedDataParallel(SAGE(g.ndata["feat"].shape[1], 64, args.classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    seconds = []
    for _ in range(args.epochs):
        dist.barrier()
        start = time.perf_counter()
        for index, (inputs, seeds, blocks) in enumerate(loader):
            loss = F.cross_entropy(
                model(blocks, g.ndata["feat"][inputs]), g.ndata["label"][seeds], ignore_index=-1
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if index + 1 == int(fewest):
                break
        seconds.append(time.perf_counter() - start)
    with open(f"{args.out}/straight-{dist.get_rank()}.json", "w") as file:
        json.dump(seconds, file)
    dist.barrier()


if __name__ == "__main__":
    main()
