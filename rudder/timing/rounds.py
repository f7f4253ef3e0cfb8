"""The table of a run as arrays ``[ranks, minibatches]``, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import CalibrationError
from rudder.result import RunResult
from rudder.timing.phases import Load

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class EpochRows:
    """The minibatches of one epoch: column name -> float64 ``[ranks, minibatches]``."""

    epoch: int
    columns: dict[str, Floats]

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]

    @property
    def nodes(self) -> Floats:
        """Input nodes."""
        return self["local"] + self["remote_sampled"]

    def load(self, row_bytes: float, rate: float, contention: Floats, depth: int) -> Load:
        """What these minibatches ask for; ``contention`` is ``[ranks]``.

        With ``depth`` sampling waits for the rows of whoever pulls, all ranks alike: it counts with
        the mean bytes of the ranks.
        """
        sampling = self["bytes_sampling"]
        if depth:
            sampling = np.broadcast_to(sampling.mean(axis=0), sampling.shape)
        return Load(
            self.nodes, self["fetched"], sampling, self["bytes_gradients"],
            row_bytes, np.asarray(rate, dtype=np.float64), contention[:, None],
        )  # fmt: skip


_COLUMNS = (
    "local", "remote_sampled", "fetched", "bytes_features", "bytes_sampling", "bytes_gradients",
    "sample_s", "fetch_s", "compute_s", "stall_s",
)  # fmt: skip


def epochs_of(run: RunResult) -> Iterator[EpochRows]:
    """The epochs of a run, in order.

    Raises:
        CalibrationError: ranks with unequal minibatches.
    """
    table = run.minibatches
    column: dict[str, npt.NDArray[Any]] = {
        name: table.column(name).to_numpy() for name in ("rank", "epoch", "step", *_COLUMNS)
    }
    ranks = int(column["rank"].max()) + 1 if table.num_rows else 0
    order = np.lexsort((column["step"], column["rank"]))
    for epoch in np.unique(column["epoch"]):
        chosen = order[column["epoch"][order] == epoch]
        counts = np.bincount(column["rank"][chosen], minlength=ranks)
        if (counts != counts[0]).any():
            raise CalibrationError(
                f"{run.run_dir}: epoch {epoch} has {counts.tolist()} minibatches per rank; the "
                "model of time needs the same of each"
            )
        shape = (ranks, int(counts[0]))
        yield EpochRows(
            int(epoch),
            {name: column[name][chosen].astype(np.float64).reshape(shape) for name in _COLUMNS},
        )


def measured_seconds(run: RunResult, epoch: int) -> float:
    """Seconds of the slowest rank in an epoch, validation not counted."""
    return max(float(rank[epoch]["seconds"]) for rank in run.details["epochs"])


def row_bytes_of(run: RunResult) -> float:
    """Bytes of a feature row; 0 if the run fetched none."""
    fetched = int(run.summary["fetched"])
    return int(run.summary["bytes_fetched"]) / fetched if fetched else 0.0
