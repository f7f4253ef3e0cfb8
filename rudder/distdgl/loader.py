"""The public door: a DistDGL node loader whose features come through a steered buffer."""

from __future__ import annotations

import time
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt
import pyarrow as pa
import torch
import torch.distributed as dist

from rudder.distdgl.epochs import Epochs
from rudder.distdgl.features import BufferedFeatures, Served, node_data
from rudder.distdgl.pipeline import Pipeline
from rudder.distdgl.recording import Recorder
from rudder.distdgl.rpc_lock import RPC_LOCK, guard_requests
from rudder.distdgl.sampler import Minibatch, Sampled, Sampler, presampled
from rudder.errors import UsageError
from rudder.observation import Facts, Task
from rudder.plugins import PluginFile
from rudder.registries import POLICIES
from rudder.result import MinibatchRow, minibatch_table
from rudder.scenario import Fill, Mode, Scenario
from rudder.seeding import Groups
from rudder.spec import Spec
from rudder.steering import Earlier, Tally, resolve, steer

_T = TypeVar("_T")
Schedule = Mapping[int, _T] | Sequence[tuple[int, _T]]
"""Values that hold from an epoch on, by epoch."""


@dataclass(slots=True)
class _Pulled:
    minibatch: Minibatch
    row: MinibatchRow


@dataclass(frozen=True)
class LoaderState:
    """What a loader has come to at the end of an epoch.

    Attributes:
        epoch: the last one that ended.
        buffer: of the buffer, without its rows.
        steering: of the decision loop.
        ahead_bytes: as of the loader.
    """

    epoch: int
    buffer: Mapping[str, npt.NDArray[Any]]
    steering: Earlier
    ahead_bytes: int


class DistNodeDataLoader:
    """Stands where ``dgl.dataloading.DistNodeDataLoader`` and the feature lookup stood.

    Yields ``(input_nodes, seeds, blocks)``, as DGL's loader does. The features of the input nodes
    lie in ``blocks[0].srcdata[features]``, the labels of the seeds in
    ``blocks[-1].dstdata[labels]``. Sampling and pulls of the next minibatches run in a background
    thread; which remote rows the buffer keeps is steered by ``controller``. The numbers that
    reach the model are exactly those of ``g.ndata[features][input_nodes]``.

    Under a policy that looks ahead, as many minibatches as its ``window`` are sampled beyond the
    one that is pulled, into the next epoch too, whatever the prefetch depth; :attr:`ahead_bytes`
    says what they hold. Neither the order of the seeds nor that of the pulls depends on it.

    Each ``iter()`` is a new epoch and ends the one before, however far that one came.

    Args:
        g: a ``dgl.distributed.DistGraph``.
        nids: seeds of this trainer, int64 ``[n]``.
        graph_sampler: a DGL sampler, such as ``dgl.dataloading.NeighborSampler([10, 25])``.
        batch_size, shuffle, drop_last: as in DGL; the order is drawn from ``seed``, rank and epoch.
        features: node data to serve, ``[N, F]``.
        labels: node data of the seeds to serve too; None = none.
        controller: controller spec, ``NAME:key=value,…`` (``rudder controllers``).
        policy: replacement policy spec (``rudder policies``).
        buffer: capacity: a float is a share of the 1-hop halo, an int a count of rows.
        fill: ``empty``, ``degree`` or ``random``: what the buffer holds at the start.
        prefetch_depth: pulls run at most so many minibatches ahead; 0 = training waits for each.
        mode: ``async`` never waits for the controller, ``sync`` waits before each pull.
        epochs: how often the loader will be iterated; None = not known, then controllers see no
            progress, and a policy that looks ahead sees no further than the end of an epoch. No
            question goes out after the last of them.
        seed: of the order of seeds, the neighbours drawn (by servers of one's own: in this process
            only), the controller and a random fill.
        even: cut every rank to the fewest minibatches of any rank (needs a process group), so
            that gradient exchange never waits for a rank that has run out.
        verify: test mode: compare every served feature matrix with the stored rows.
        decisions: file for the decisions, JSON Lines, appended as they happen.
        plugins: plug-in files that a controller in a process of its own needs.
        groups: of each seed, int32 ``[n]``: an epoch takes the seeds group by group, shuffled
            inside (:func:`rudder.seeding.seed_groups`); None = as ``shuffle`` says.
        batch_size_at, fan_out_at: values from an epoch on, by epoch; the fan-out needs a
            ``NeighborSampler``.
        trace: record this rank's minibatches into the access trace there
            (:func:`rudder.trace.start_trace` makes it); :meth:`close` completes it.
        graph: what controllers are told of the graph's name; default: DGL's name of it.
        service: socket of a process that serves this host's trainers with controllers
            (:class:`rudder.steering.ControllerService`); without one, a controller that wants a
            process gets its own.
        earlier: what a loader of an earlier process came to (:meth:`state`): the first epoch here
            is the one after its last.

    Raises:
        UsageError: an unknown name, a parameter out of range, a capacity above the remote nodes;
            iterated after :meth:`close`.
        TransportError: the graph lacks the features or labels.
        ControllerError: the controller cannot be reset.
        TraceError: the trace cannot be recorded there.
    """

    def __init__(
        self,
        g: Any,
        nids: torch.Tensor,
        graph_sampler: Any,
        *,
        batch_size: int,
        shuffle: bool = False,
        drop_last: bool = False,
        features: str = "feat",
        labels: str | None = "label",
        controller: str | Spec | Mapping[str, Any] = "always",
        policy: str = "score",
        buffer: float | int = 0.25,
        fill: Fill = "degree",
        prefetch_depth: int = 2,
        mode: Mode = "async",
        epochs: int | None = None,
        seed: int = 0,
        even: bool = False,
        verify: bool = False,
        decisions: Path | None = None,
        plugins: Sequence[PluginFile] = (),
        groups: Groups | None = None,
        batch_size_at: Schedule[int] = (),
        fan_out_at: Schedule[Sequence[int]] = (),
        trace: Path | None = None,
        graph: str | None = None,
        service: Path | None = None,
        earlier: LoaderState | None = None,
    ) -> None:
        fan_out = tuple(getattr(graph_sampler, "fanouts", ())) or (-1,)
        changes = [*dict(batch_size_at), *dict(fan_out_at)]
        asked = Scenario.make(
            graph=graph or getattr(g, "graph_name", None) or g._graph_name,
            layers=len(fan_out), fan_out=fan_out, batch_size=batch_size,
            epochs=epochs or 1 + max(changes, default=0), policy=policy, fill=fill, buffer=buffer,
            prefetch_depth=prefetch_depth, mode=mode, seed=seed, batch_size_at=batch_size_at,
            fan_out_at=fan_out_at,
        )  # fmt: skip
        resolved = resolve(asked, controller)
        self.scenario = resolved.scenario
        guard_requests()
        self.rank, world = _rank_and_world()
        sampling = Epochs(
            g, nids, graph_sampler, self.scenario, self.rank, groups, shuffle, drop_last
        )
        self._features_name, self._labels_name = features, labels
        self._labels = node_data(g, labels) if labels is not None else None
        replacement = POLICIES.build(self.scenario.policy)
        self.features = BufferedFeatures(
            g, features, replacement, self.scenario.buffer, self.scenario.fill, seed, verify,
            presample=lambda minibatches: presampled(sampling, minibatches),
            state=None if earlier is None else dict(earlier.buffer),
        )  # fmt: skip
        own = [sampling.minibatches(epoch) for epoch in range(self.scenario.epochs)]
        self.planned = tuple(_fewest(own) if even and world > 1 else own)
        """Minibatches of each epoch; further epochs are like the last."""
        self.surplus = own[0] - self.planned[0]
        window = replacement.window if self.features.buffer is not None else 0
        last = epochs - 1 if epochs else -1
        self._sampler = Sampler(sampling, self.planned, self.features, window, last)
        self.rows: list[MinibatchRow] = []
        self.trained = 0
        """Minibatches that training has finished with."""
        self._epochs = epochs or 0
        self._epoch = -1
        if earlier is not None:
            self.rows += earlier.steering.rows
            self.trained, self._epoch = len(self.rows), earlier.epoch
            self._sampler.ahead_bytes = earlier.ahead_bytes
        self._pipeline = Pipeline(self._produce, self.scenario.prefetch_depth)
        self._iteration: Generator[tuple[_Pulled, float], None, None] | None = None
        self._current: MinibatchRow | None = None
        self._handed_at = 0.0
        self._closed = False
        self._recorder = (
            Recorder(trace, self.rank, self.planned, nids) if trace is not None else None
        )
        self._steering = steer(
            resolved.spec, Task(self._facts(world), seed, self.rank), mode=self.scenario.mode,
            plugins=plugins, decisions_path=decisions, service=service,
            earlier=None if earlier is None else earlier.steering,
        )  # fmt: skip
        # Scripts that never call close(): end the controller at exit, before DGL's own exit hook.
        weakref.finalize(self, self._steering.close)

    def __len__(self) -> int:
        """Minibatches of the epoch that was begun last, at first of the first."""
        return self._sampler.minibatches(max(self._epoch, 0))

    def __iter__(self) -> Iterator[Minibatch]:
        if self._closed:
            raise UsageError("this loader was closed; make a new one to iterate again")
        self._end_iteration()
        self._epoch += 1
        self._sampler.begin(self._epoch)
        iteration = iter(self._pipeline)
        self._iteration = iteration
        return self._minibatches(iteration)

    def _minibatches(
        self, iteration: Generator[tuple[_Pulled, float], None, None]
    ) -> Iterator[Minibatch]:
        try:
            for pulled, waited in iteration:
                pulled.row.stall_s = waited
                self._current = pulled.row
                self._handed_at = time.perf_counter()
                yield pulled.minibatch
                if iteration is self._iteration:
                    self._finish_row()  # before the next wait, which is not computing
        finally:
            if iteration is self._iteration:
                self._end_iteration()

    def _end_iteration(self) -> None:
        """End the background thread of the running iteration, if there is one."""
        self._finish_row()
        iteration, self._iteration = self._iteration, None
        if iteration is not None:
            iteration.close()
        if self._recorder is not None:
            self._recorder.flush()

    def note(self, **values: float | int) -> None:
        """Write values such as ``loss`` or ``bytes_gradients`` into the current minibatch's row."""
        row = self._current if self._current is not None else self.rows[-1]
        for name, value in values.items():
            setattr(row, name, value)

    def table(self) -> pa.Table:
        """The per-minibatch table so far (:data:`rudder.result.MINIBATCH_SCHEMA`)."""
        return minibatch_table(self.rows)

    def state(self) -> LoaderState:
        """What another loader needs to go on from here, between two epochs; rows and journal
        excepted: they grow, and are :attr:`rows` and the file of ``decisions``.

        Raises:
            UsageError: in the middle of an epoch.
            ResultError: decisions could not be written.
        """
        if self._iteration is not None:
            raise UsageError("a loader has a state between epochs only; end the loop first")
        steering = Earlier((), b"", self._steering.to_state())
        return LoaderState(self._epoch, self.features.state(), steering, self.ahead_bytes)

    def close(self) -> Tally:
        """End the decision loop and its controller; what steering came to. Safe to call twice."""
        self._closed = True
        self._end_iteration()
        self._pipeline.close()
        if self._recorder is not None:
            self._recorder.close()
        return self._steering.close()

    def _finish_row(self) -> None:
        row, self._current = self._current, None
        if row is not None:
            row.compute_s = time.perf_counter() - self._handed_at
            self.trained += 1
            self._steering.trained(row.step, row.compute_s, row.stall_s)
            if self._recorder is not None:
                self._recorder.trained()

    def _produce(self) -> _Pulled | None:
        """Sample, plan, pull: the next minibatch with its features. One thread at a time."""
        sampled = self._sampler.next()
        if sampled is None:
            return None
        _, seeds, blocks = sampled.minibatch
        step = len(self.rows)
        turn = self._steering.before_pull(step)  # may wait in sync mode: without the lock
        with RPC_LOCK:
            planned = time.perf_counter()
            served = self.features.serve(sampled.wanted, turn.decision)
            blocks[0].srcdata[self._features_name] = served.rows
            if self._labels is not None:
                blocks[-1].dstdata[self._labels_name] = self._labels[seeds]
            pulled = time.perf_counter()
        row = self._row(step, sampled, served)
        row.fetch_s, row.wait_decision_s = pulled - planned, turn.waited_s
        self.rows.append(row)
        if self._recorder is not None:
            self._recorder.pulled(row, sampled)
        self._steering.after_pull(row)
        return _Pulled(sampled.minibatch, row)

    @property
    def ahead_bytes(self) -> int:
        """Most memory held so far by minibatches that were sampled for the policy's window."""
        return self._sampler.ahead_bytes

    def _row(self, step: int, sampled: Sampled, served: Served) -> MinibatchRow:
        feature_bytes, id_bytes = self.features.wire_bytes_per_row
        return MinibatchRow(
            rank=self.rank,
            epoch=sampled.epoch,
            step=step,
            seeds=len(sampled.minibatch[1]),
            local=served.local,
            remote_sampled=served.remote,
            hits=served.hits,
            misses=served.misses,
            replaced=served.replaced,
            fetched=served.fetched,
            stale_share=served.stale_share,
            occupancy=served.occupancy,
            bytes_features=served.fetched * feature_bytes,
            bytes_ids=served.fetched * id_bytes,
            sample_s=sampled.seconds,
            bytes_sampling=sampled.sampling_bytes,
        )

    def _facts(self, world: int) -> Facts:
        view, scenario = self.features.view, self.scenario
        return Facts(
            graph=scenario.graph,
            nodes=view.nodes,
            edges=view.edges,
            feature_bytes=self.features.row_bytes,
            parts=view.parts,
            part_nodes=view.part_nodes,
            halo_nodes=int(view.halo.size),
            remote_nodes=view.remote_nodes,
            batch_size=scenario.batch_size,
            fan_out=scenario.fan_out,
            capacity=self.features.capacity,
            trainers=world,
            epochs=self._epochs,
            total_minibatches=sum(self.planned) if self._epochs else 0,
            policy=scenario.policy,
        )


def _rank_and_world() -> tuple[int, int]:
    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def _fewest(minibatches: Sequence[int]) -> list[int]:
    """The fewest minibatches of any rank, in each epoch."""
    fewest = torch.tensor(minibatches)
    dist.all_reduce(fewest, op=dist.ReduceOp.MIN)
    found: list[int] = fewest.tolist()
    return found
