"""One trainer: DistDGL, DDP, and the public loader. Uses nothing that a user's script could not."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Literal

import dgl
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from dgl.distributed import DistGraph, node_split
from torch.nn.parallel import DistributedDataParallel

from rudder.cluster.report import report
from rudder.distdgl import keeping
from rudder.distdgl.drawing import ask_seeded
from rudder.distdgl.evaluation import Evaluator
from rudder.distdgl.job import Job
from rudder.distdgl.leaving import no_barrier_after_failure
from rudder.distdgl.loader import DistNodeDataLoader
from rudder.distdgl.models import build_model, loss_of
from rudder.distdgl.trouble import Clock
from rudder.distdgl.wire import ring_allreduce_bytes
from rudder.errors import RudderError
from rudder.partition import Partition
from rudder.plugins import load_files
from rudder.seeding import seed_groups

_REPORT_EVERY_S = 0.5


def train(job: str) -> None:
    """Train one rank of the job in the file ``job``. Reads DGL's and torch's environment."""
    clock = Clock()
    report("started", at=time.time())
    with no_barrier_after_failure():
        try:
            Trainer(Job.load(Path(job)), clock).run()
        except RudderError as error:
            report("failed", error=type(error).__name__, message=str(error))
            raise
    report("done")


class Trainer:
    """Connects, trains every epoch, tests, and writes this rank's part of the result."""

    def __init__(self, job: Job, clock: Clock) -> None:
        self.job, self.scenario, self.clock = job, job.scenario, clock
        load_files(job.plugins)
        ask_seeded()
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        partition = Partition.load(job.partition)
        self.g: Any = DistGraph(partition.graph_name, part_config=str(partition.config))
        report("connected")
        torch.manual_seed(self.scenario.seed)
        model = build_model(self.scenario, partition.feature_width, partition.classes)
        kept = None if job.resume is None else keeping.read(job, self.rank, partition.digest)
        self.model = DistributedDataParallel(model)
        self._settle_sums(partition.feature_width)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=self.scenario.lr)
        model_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
        self.gradient_bytes = ring_allreduce_bytes(model_bytes, self.world)
        torch.manual_seed(self.scenario.seed * 1_000_003 + self.rank)
        self.sampler = dgl.dataloading.NeighborSampler(list(self.scenario.fan_out))
        seeds = self._split("train_mask")
        part = self.g.get_partition_book().partid
        self.loader = DistNodeDataLoader(
            self.g, seeds, self.sampler,
            batch_size=self.scenario.batch_size, shuffle=True,
            controller=job.controller, policy=self.scenario.policy, buffer=self.scenario.buffer,
            fill=self.scenario.fill, prefetch_depth=self.scenario.prefetch_depth,
            mode=self.scenario.mode, epochs=self.scenario.epochs, seed=self.scenario.seed,
            even=True, verify=job.verify, decisions=job.decisions_path(self.rank),
            plugins=job.plugins,
            groups=seed_groups(self.scenario, partition, part, seeds.numpy()),
            batch_size_at=self.scenario.batch_size_at, fan_out_at=self.scenario.fan_out_at,
            trace=job.record, graph=self.scenario.graph, service=job.service,
            earlier=None if kept is None else kept.loader,
        )  # fmt: skip
        self.evaluator = Evaluator(
            self.g, self.model, self.sampler, 4 * self.scenario.batch_size, partition.multilabel,
            self.scenario.seed,
        )  # fmt: skip
        self.epochs: list[dict[str, Any]] = []
        if kept is not None:
            self.epochs += kept.epochs
            keeping.restore(kept.state, model, self.optimizer)
        self.keeper = keeping.Keeper(
            job, self.rank, partition.digest, self.loader, model, self.optimizer, kept
        )
        self._reported = 0.0

    def _settle_sums(self, width: int) -> None:
        """Have DDP choose the order in which it sums gradients, as it does after a first step.

        Three sums or more are rounded by their order: a run that goes on must have it from its
        first minibatch, as the run that was not broken has.
        """
        blocks = [dgl.create_block(([0], [0])) for _ in range(self.scenario.layers)]
        self.model(blocks, torch.zeros(1, width)).sum().backward()
        self.model.zero_grad()

    def _split(self, mask: str) -> torch.Tensor:
        nodes: torch.Tensor = node_split(
            self.g.ndata[mask], self.g.get_partition_book(), force_even=True,
            rank=self.rank,  # DGL's own number of a trainer is a matter of who connects first
        )  # fmt: skip
        return nodes

    def run(self) -> None:
        report("ready", minibatches=list(self.loader.planned), surplus=self.loader.surplus)
        ended: float | None = None
        for epoch in range(len(self.epochs), self.scenario.epochs):
            dist.barrier()
            start = time.perf_counter()
            pause = start - (ended or start)
            self._epoch()
            ended = time.perf_counter()
            took = {"seconds": ended - start, "pause_s": pause}
            self.epochs.append({"epoch": epoch, **took, **self._validate(epoch)})
            problem = self.keeper.keep(self.epochs) if self.job.checkpoint else None
            self.clock.look()
            size = self.keeper.last_bytes
            report("epoch", **self.epochs[-1], no_checkpoint=problem, checkpoint_bytes=size)
        steering = self.loader.close()
        test = self._evaluate("test", self.scenario.epochs)
        self._save(steering.to_state(), test)
        dist.barrier()

    def _epoch(self) -> None:
        self.model.train()
        for _, _, blocks in self.loader:
            logits = self.model(blocks, blocks[0].srcdata["feat"])
            loss = loss_of(logits, blocks[-1].dstdata["label"])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.loader.note(loss=float(loss.detach()), bytes_gradients=self.gradient_bytes)
            self._progress()

    def _progress(self) -> None:
        now = time.monotonic()
        if now - self._reported >= _REPORT_EVERY_S:
            self._reported = now
            self.clock.look()
            report("step", step=self.loader.trained)

    def _validate(self, epoch: int) -> dict[str, Any]:
        every, last = self.scenario.eval_every, epoch == self.scenario.epochs - 1
        if not (last or (every and (epoch + 1) % every == 0)):
            return {}
        return {"val_metric": self._evaluate("validate", epoch)}

    def _evaluate(self, kind: Literal["validate", "test"], epoch: int) -> float | None:
        nodes = self._split("val_mask" if kind == "validate" else "test_mask")
        metric, moved = self.evaluator.run(nodes, kind, epoch, self._progress)
        self.loader.note(bytes_evaluation=self.loader.rows[-1].bytes_evaluation + moved)
        return metric

    def _save(self, steering: dict[str, Any], test: Any) -> None:
        pq.write_table(self.loader.table(), self.job.table_path(self.rank))
        facts = {
            "epochs": self.epochs,
            "checkpoints": self.keeper.counts,
            "clock_jumps": self.clock.jumps,
            "steering": steering,
            "test_metric": test,
            "filled": self.loader.features.filled,
            "capacity": self.loader.features.capacity,
            "surplus": self.loader.surplus,
            "ahead_bytes": self.loader.ahead_bytes,
            "row_bytes": self.loader.features.row_bytes,
        }
        part = self.job.facts_path(self.rank).with_suffix(".part")
        part.write_text(json.dumps(facts) + "\n")
        part.replace(self.job.facts_path(self.rank))
