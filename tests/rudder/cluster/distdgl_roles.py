"""The smallest DistDGL job: a server, and a trainer that pulls features and reduces."""

from __future__ import annotations

from rudder.cluster.report import report


def serve(ip_config: str) -> None:
    import dgl

    dgl.distributed.initialize(ip_config)  # ends with the job, by SystemExit


def train(ip_config: str, config: str, nodes: int) -> None:
    import dgl
    import torch
    import torch.distributed as dist

    dgl.distributed.initialize(ip_config)
    dist.init_process_group("gloo")
    graph = dgl.distributed.DistGraph("tiny", part_config=config)
    report("ready", nodes=graph.num_nodes())
    features = graph.ndata["feat"][torch.arange(nodes)]
    total = features.sum()
    dist.all_reduce(total)
    neighbours = graph.in_degrees(torch.arange(nodes)).sum()
    report("done", total=float(total), edges=int(neighbours), rows=len(features))
    dist.destroy_process_group()
