"""When minibatches are pulled and trained, given the seconds of their phases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rudder.timing.phases import Phases

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Epoch:
    """What an epoch came to.

    Attributes:
        seconds: until its last minibatch was trained.
        stall_s: ``[ranks, minibatches]``: seconds that training waited for each minibatch.
        trained: ``[minibatches]``: second at which each was trained by all ranks.
    """

    seconds: float
    stall_s: Floats
    trained: Floats


def run_epoch(phases: Phases, depth: int) -> Epoch:
    """The recurrence over an epoch's minibatches i, all ranks r at once; arrays ``[ranks, n]``.

    - depth d = 0: ``P[i] = D[i-1] + sample[i] + fetch[i]``;
      else ``P[i] = max(P[i-1], T[i-d]) + sample[i] + fetch[i]``: sampling and pulling share one
      thread, which turns to minibatch i when training has taken minibatch i-d;
    - ``T[i] = max(P[i], D[i-1])``: training takes it over, after a stall of ``T[i] - D[i-1]``;
    - ``D[i] = max over ranks of T[i] + compute[i]``: the barrier of the gradient exchange.

    D of all ranks is one number. The same as :class:`rudder.replay.clock.TrainerClock`, for all
    ranks at once.
    """
    ahead = phases.sample_s + phases.fetch_s
    ranks, count = ahead.shape
    taken = np.zeros((ranks, count))
    trained = np.zeros(count)
    stall = np.zeros((ranks, count))
    pulled, done = np.zeros(ranks), 0.0
    for i in range(count):
        if depth == 0:
            start = np.full(ranks, done)
        elif i >= depth:
            start = np.maximum(pulled, taken[:, i - depth])
        else:
            start = pulled
        pulled = start + ahead[:, i]
        taken[:, i] = np.maximum(pulled, done)
        stall[:, i] = taken[:, i] - done
        done = float((taken[:, i] + phases.compute_s[:, i]).max())
        trained[i] = done
    return Epoch(done, stall, trained)
