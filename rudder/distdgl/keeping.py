"""What a trainer puts into its checkpoints, and takes out of one to go on."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from rudder.distdgl import checkpoint
from rudder.distdgl.checkpoint import Part
from rudder.distdgl.job import Job
from rudder.distdgl.loader import DistNodeDataLoader, LoaderState
from rudder.errors import CheckpointError, ResultError
from rudder.result import MinibatchRow, minibatch_table
from rudder.steering import Earlier

_log = logging.getLogger(__name__)


class Kept(NamedTuple):
    """A checkpoint that was read.

    Attributes:
        state: model, optimizer and random state: see :func:`restore`.
        loader: what a new loader goes on from.
        epochs: facts of the epochs so far.
    """

    state: Part
    loader: LoaderState
    epochs: list[dict[str, Any]]


def read(job: Job, rank: int, partition: str) -> Kept:
    """This rank's part of the checkpoint that a job goes on from.

    Args:
        partition: digest of the partition that is trained on.

    Raises:
        CheckpointError: it is damaged, or of another partition.
    """
    if job.resume is None:
        raise CheckpointError(f"{job.path} does not say which epoch to go on from")
    path, *tail_paths = checkpoint.files(job.checkpoint_dir, job.resume, rank)
    state, tails = checkpoint.read(path), [checkpoint.read(tail) for tail in tail_paths]
    facts = state.facts
    if facts["partition"] != partition:
        raise CheckpointError(
            f"{path} is of a run on another partition, whose nodes have other numbers: the graph "
            "or its partition was made anew since; run it from the beginning"
        )
    rows = [row for tail in tails for row in _rows(tail)]
    journal = b"".join(tail.arrays["journal"].tobytes() for tail in tails)
    loader = LoaderState(
        job.resume, state.below("buffer"), Earlier(rows, journal, facts["steering"]),
        facts["ahead_bytes"],
    )  # fmt: skip
    return Kept(state, loader, list(facts["epochs"]))


def restore(state: Part, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Give a model and its optimizer, and PyTorch's generator, what they had."""
    model.load_state_dict({name: torch.from_numpy(a) for name, a in state.below("model").items()})
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for name, array in state.below("optimizer").items():
        number, _, what = name.partition(".")
        moments.setdefault(int(number), {})[what] = torch.from_numpy(array)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})
    torch.set_rng_state(torch.from_numpy(state.arrays["random"]))


class Keeper:
    """Keeps this rank's part of a checkpoint at the end of every epoch.

    What cannot be written is told and counted, and training goes on: an epoch has a checkpoint if
    all ranks have their parts, else none.

    Args:
        job: says where, and what the run went on from.
        partition: digest of the partition.
        kept: that checkpoint.

    Attributes:
        counts: ``kept`` and ``failed`` checkpoints of this process; ``bytes`` and ``seconds`` of
            all of them.
        last_bytes: of the last one.
    """

    def __init__(
        self,
        job: Job,
        rank: int,
        partition: str,
        loader: DistNodeDataLoader,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        kept: Kept | None,
    ) -> None:
        self._job, self._folder = job, job.checkpoint_dir
        self._rank, self._own = rank, range(rank, rank + 1)
        self._partition = partition
        self._loader, self._model, self._optimizer = loader, model, optimizer
        self._tails: list[int] = [] if kept is None else list(kept.state.facts["tails"])
        self._rows = len(loader.rows)
        self._journal = 0 if kept is None else kept.state.facts["steering"]["journal"]
        self.counts: dict[str, float] = {"kept": 0, "failed": 0, "bytes": 0, "seconds": 0.0}
        self.last_bytes = 0
        # Of an attempt that came further: another one's parts must not stand beside them.
        checkpoint.clear(self._folder, job.resume, self._own)

    def keep(self, epochs: Sequence[Mapping[str, Any]]) -> str | None:
        """Keep what has come after these epochs; every rank must call it.

        Returns what went wrong here, or on another rank; None = there is a checkpoint.
        """
        start, epoch = time.perf_counter(), int(epochs[-1]["epoch"])
        problem: str | None = None
        position, size = self._journal, 0
        try:
            loader = self._loader.state()
            position = loader.steering.state["journal"]
            size = self._write(epoch, epochs, loader, position)
        except (OSError, ResultError) as error:
            problem = str(error)
        everywhere = torch.tensor(int(problem is None))
        dist.all_reduce(everywhere, op=dist.ReduceOp.MIN)
        if int(everywhere):
            self._tails.append(epoch)
            self._rows, self._journal = len(self._loader.rows), position
            _quietly(lambda: checkpoint.keep_last(self._folder, self._tails, self._own))
        else:
            problem = problem or "another rank could not write its part"
            _quietly(lambda: checkpoint.clear(self._folder, epoch - 1, self._own))
            _log.warning("epoch %d has no checkpoint: %s; training goes on", epoch, problem)
        self.counts["failed" if problem else "kept"] += 1
        self.counts["bytes"] += size
        self.last_bytes = size
        self.counts["seconds"] += time.perf_counter() - start
        return problem

    def _write(
        self, epoch: int, epochs: Sequence[Mapping[str, Any]], loader: LoaderState, position: int
    ) -> int:
        tail = {
            **_columns(self._loader.rows[self._rows :]),
            "journal": self._lines(self._journal, position),
        }
        path = checkpoint.tail_path(self._folder, epoch, self._rank)
        size = checkpoint.write(path, Part(tail, {}))
        arrays = {
            **_named("model", self._model.state_dict()),
            **_named("optimizer", _moments(self._optimizer)),
            **{f"buffer.{name}": array for name, array in loader.buffer.items()},
            "random": torch.get_rng_state().numpy(),
        }
        facts = {
            "epoch": epoch,
            "rank": self._rank,
            "partition": self._partition,
            "tails": [*self._tails, epoch],
            "epochs": list(epochs),
            "steering": loader.steering.state,
            "ahead_bytes": loader.ahead_bytes,
        }
        path = checkpoint.state_path(self._folder, epoch, self._rank)
        return size + checkpoint.write(path, Part(arrays, facts))

    def _lines(self, start: int, end: int) -> npt.NDArray[np.uint8]:
        with self._job.decisions_path(self._rank).open("rb") as journal:
            journal.seek(start)
            return np.frombuffer(journal.read(end - start), np.uint8)


def _moments(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{n}.{name}": value for n, own in state.items() for name, value in own.items()}


def _named(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, npt.NDArray[Any]]:
    return {f"{prefix}.{name}": t.detach().cpu().numpy() for name, t in tensors.items()}


def _columns(rows: Sequence[MinibatchRow]) -> dict[str, npt.NDArray[Any]]:
    table = minibatch_table(rows)
    return {f"rows.{name}": table.column(name).to_numpy() for name in table.schema.names}


def _rows(tail: Part) -> list[MinibatchRow]:
    columns = tail.below("rows")
    names = [field.name for field in dataclasses.fields(MinibatchRow)]
    return [MinibatchRow(*row) for row in zip(*(columns[n].tolist() for n in names), strict=True)]


def _quietly(act: Callable[[], None]) -> None:
    try:
        act()
    except OSError as error:
        _log.warning("%s", error)
