"""Plug-in of ``bench_agent_cost.py``: a run's answers at the same minibatches, in real training."""

from __future__ import annotations

from rudder import Capabilities
from rudder.registries import CONTROLLERS
from rudder.replay.recorded import Recorded


class Schedule(Recorded):
    """Needs no trace: which minibatch replaces is all that it repeats.

    Synchronous, or an answer might apply a minibatch late; looking one up takes microseconds.
    """

    tags: Capabilities = Capabilities(paths=("run",))


CONTROLLERS.register(
    "schedule",
    Schedule,
    summary="an earlier run's answers at the same minibatches, in real training too",
    params={"run": ""},
    fields={"mode": "sync"},
)
