"""Who fetches from whom, and how long flows that share links take."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rudder.trace import Trace

Floats = npt.NDArray[np.float64]
_MINIBATCHES = 256
"""Minibatches per rank that a trace's traffic is averaged over."""


@dataclass(frozen=True)
class Traffic:
    """Mean traffic of a minibatch.

    Attributes:
        rows: float64 ``[ranks, parts]``: remote nodes that a rank samples from the part that owns
            them; 0 at its own part.
        trainers: ranks per part.
    """

    rows: Floats
    trainers: int = 1

    @classmethod
    def of(cls, trace: Trace, minibatches: int = _MINIBATCHES) -> Traffic:
        """Of the first minibatches of each rank of a trace."""
        manifest = trace.manifest
        edges = np.cumsum([0, *manifest.part_nodes])
        rows = np.zeros((manifest.ranks, manifest.parts))
        for rank in trace.ranks:
            count = 0
            for row in itertools.islice(trace.minibatches(rank), minibatches):
                rows[rank] += np.diff(np.searchsorted(row.remote_ids, edges))
                count += 1
            rows[rank] /= max(count, 1)
        return cls(rows, manifest.scenario.trainers)

    def contention(self) -> Floats:
        """Per rank: how much longer a pull takes than its own rows alone at a full link.

        All ranks pull at once. A link is shared evenly among the flows that are not done, so a flow
        of ``f`` rows is done when the link has passed ``sum(min(f', f))`` rows over its flows
        ``f'``. Links: out of the owner, and into the fetching host.
        """
        out = np.array([np.minimum(self.rows, own).sum(axis=0) for own in self.rows])
        out = np.where(self.rows > 0, out, 0.0).max(axis=1)
        total = self.rows.sum(axis=1)
        host = np.arange(len(total)) // self.trainers
        into = np.array(
            [np.minimum(total[host == host[r]], total[r]).sum() for r in range(len(total))]
        )
        slowest = np.maximum(out, into)
        return np.divide(slowest, total, out=np.ones_like(total), where=total > 0)
