"""What the launcher makes of the reports of a run's trainers."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rudder import errors
from rudder.cluster.report import Report
from rudder.cluster.roles import Role
from rudder.distdgl.attempts import Gathering
from rudder.distdgl.trouble import Clock, Room
from rudder.engine import RunOptions
from rudder.errors import ClusterError, RoleError, RudderError
from rudder.scenario import Scenario

_log = logging.getLogger(__name__)


@dataclass
class Watch:
    """Turns the roles' reports into one progress: all ready, then the slowest trainer's step.

    Changes the rate of the links between two epochs, where the scenario says so.
    """

    scenario: Scenario
    options: RunOptions
    shape: Callable[[float], None]
    gathering: Gathering
    ready: int = 0
    planned: list[int] = field(default_factory=list)
    """Minibatches of each epoch."""
    ended: Counter[int] = field(default_factory=Counter)
    """Trainers that have ended an epoch, by epoch."""
    unkept: set[int] = field(default_factory=set)
    """Epochs that have no checkpoint."""
    clock: Clock = field(default_factory=Clock)
    offsets: dict[int, float] = field(default_factory=dict)
    """Seconds by which a trainer's clock was ahead of this machine's as it started."""
    room: Room = field(init=False)
    steps: dict[str, int] = field(default_factory=dict)
    done: int = 0
    cause: RudderError | None = None
    """What the first trainer that failed said."""

    def __post_init__(self) -> None:
        self.room = Room(self.options.run_dir)

    @property
    def trainers(self) -> int:
        return self.scenario.parts * self.scenario.trainers

    def report(self, role: Role, report: Report) -> None:
        if role.kind != "trainer":
            return
        phase, data = report.phase, report.data
        self.clock.look()
        if phase == "started":
            self.offsets[role.index] = round(data["at"] - time.time(), 1)
        elif phase == "ready":
            self.ready += 1
            self.planned = data["minibatches"]
            self.options.progress("start", self.ready / self.trainers)
            if self.ready == self.trainers:
                self.room.look(sum(self.planned) * self.trainers)
        elif phase == "step":
            self.steps[role.name] = data["step"]
        elif phase == "epoch":
            self.steps[role.name] = sum(self.planned[: data["epoch"] + 1])
            self._epoch_ended(data["epoch"], role, data["no_checkpoint"])
            left = sum(self.planned[data["epoch"] + 1 :])
            self.room.look(left * self.trainers, data["checkpoint_bytes"] * self.trainers)
        elif phase == "done":
            self.done += 1
            self.options.progress("test", self.done / self.trainers)
        elif phase == "failed":
            kind = getattr(errors, data["error"], None)
            if self.cause is None and kind is not None:
                self.cause = kind(f"{role.name}: {data['message']} (log: {role.log})")
        if self.planned and len(self.steps) == self.trainers:
            self.options.progress("train", min(self.steps.values()) / max(sum(self.planned), 1))

    def _epoch_ended(self, epoch: int, role: Role, no_checkpoint: str | None) -> None:
        """With the last trainer's report of an epoch the next one begins, at its own rate."""
        self.ended[epoch] += 1
        if no_checkpoint is not None and epoch not in self.unkept:
            self.unkept.add(epoch)
            _log.warning(
                "epoch %d has no checkpoint (%s: %s); training goes on", epoch, role.name,
                no_checkpoint,
            )  # fmt: skip
        if self.ended[epoch] < self.trainers:
            return
        if self.options.checkpoint and epoch not in self.unkept:
            self.gathering.kept(epoch)
        rate = self.scenario.rate_of(epoch + 1)
        if rate != self.scenario.rate_of(epoch):
            self.shape(rate)

    def cause_of(self, error: ClusterError) -> RudderError:
        """A trainer that failed by an error of Rudder's has said so: that one is to be told."""
        return self.cause or error if isinstance(error, RoleError) else error
