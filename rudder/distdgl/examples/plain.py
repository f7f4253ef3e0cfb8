"""GraphSAGE on DistDGL, nothing of Rudder: a script as people have it.

    rudder launch debian plain.py -- --ip_config {ip_config} --part_config {part_config} \
        --graph_name {graph_name}
"""

import argparse
import json
import time
from typing import Any

import dgl
import dgl.nn
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class SAGE(nn.Module):
    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = dgl.nn.SAGEConv(inputs, hidden, "mean")
        self.second = dgl.nn.SAGEConv(hidden, classes, "mean")

    def forward(self, blocks: list[Any], x: torch.Tensor) -> torch.Tensor:
        x = F.dropout(F.relu(self.first(blocks[0], x)), 0.5, self.training)
        logits: torch.Tensor = self.second(blocks[1], x)
        return logits


def main(args: argparse.Namespace) -> None:
    dgl.distributed.initialize(args.ip_config)
    dist.init_process_group("gloo")
    g = dgl.distributed.DistGraph(args.graph_name, part_config=args.part_config)
    book = g.get_partition_book()
    train_nids = dgl.distributed.node_split(g.ndata["train_mask"], book, force_even=True)
    labels = g.ndata["label"]
    classes = int(labels[torch.arange(g.num_nodes())].max()) + 1

    sampler = dgl.dataloading.NeighborSampler([10, 25])
    options = {"batch_size": args.batch_size, "shuffle": True, "drop_last": True}
    loader = dgl.dataloading.DistNodeDataLoader(g, train_nids, sampler, **options)
    model = nn.parallel.DistributedDataParallel(SAGE(g.ndata["feat"].shape[1], 64, classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

    for epoch in range(args.epochs):
        dist.barrier()
        start, total = time.perf_counter(), 0.0
        for input_nodes, seeds, blocks in loader:
            x = g.ndata["feat"][input_nodes]
            y = labels[seeds]
            loss = F.cross_entropy(model(blocks, x), y, ignore_index=-1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss)
        seconds = time.perf_counter() - start
        print(json.dumps({"epoch": epoch, "seconds": seconds, "loss": total}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ip_config", required=True)
    parser.add_argument("--part_config", required=True)
    parser.add_argument("--graph_name", required=True)
    parser.add_argument("--batch_size", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=5)
    main(parser.parse_args())
