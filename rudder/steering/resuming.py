"""Steering that goes on where an earlier process of the same run stood.

What a controller was shown follows from the rows and the journal
(:func:`rudder.steering.rebuilt.retrace`); so it can be asked again, and answers for nobody to hear,
to learn what it knew. An agent is not: every answer would be as slow and as dear as the first. It
finds its past in the history of the next observation.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rudder.observation import Observation, Task
from rudder.steering.asker import Asker
from rudder.steering.context import ContextBuilder
from rudder.steering.journal import parse_decisions
from rudder.steering.rebuilt import retrace

if TYPE_CHECKING:
    from rudder.result import MinibatchRow

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Earlier:
    """What one trainer's steering had come to between two minibatches.

    Attributes:
        rows: of all its minibatches, in order.
        journal: what it had written down (:mod:`rudder.steering.journal`): whole lines.
        state: :meth:`rudder.steering.loop.Steering.to_state`.
    """

    rows: Sequence[MinibatchRow]
    journal: bytes
    state: Mapping[str, Any]

    @property
    def open_question(self) -> Observation | None:
        """The one that had no answer yet."""
        given = self.state["open"]
        return None if given is None else Observation.from_dict(given)

    def retrace(
        self, asker: Asker | None, task: Task, context: ContextBuilder, deadline_s: float
    ) -> None:
        """Bring a new context to where it was, and a controller that is asked to what it knew.

        Args:
            asker: whom to ask what was asked before; None = nobody.
        """
        records = parse_decisions(self.journal.decode(), "the journal of the checkpoint")
        for asked in retrace(task, self.rows, records, context):
            if asker is None:
                continue
            asker.ask(asked.observation)
            if asker.wait(deadline_s) >= deadline_s:
                _log.warning("question %d is not answered again", asked.observation.index)
