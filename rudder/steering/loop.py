"""The decision loop of one trainer: the clock of steering.

The clock is the order of pulls. When a pull has returned and no question is open, an observation
goes out. Asynchronous: the answer applies at the first pull planned after it arrives, and no pull
waits. Synchronous: the next pull waits for it. One question is open at a time; one that is not
answered by its deadline is closed as a timeout, the buffer is kept, and the next one goes out.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rudder.decision import Decision
from rudder.observation import Observation, Task
from rudder.steering.asker import Asker
from rudder.steering.collector import Collector
from rudder.steering.context import ContextBuilder, Settled
from rudder.steering.journal import Journal
from rudder.steering.tally import Tally

if TYPE_CHECKING:
    from rudder.result import MinibatchRow
    from rudder.steering.resuming import Earlier

HISTORY = 8
"""Decisions in the history of an observation."""
WINDOW = 8
"""Minibatches before and after a decision that are compared at most."""


class Turn(NamedTuple):
    """What a pull is planned under.

    Attributes:
        decision: a valid answer that applies to this minibatch; None = there is no new one.
        waited_s: seconds that the pull waited for it; 0.0 in asynchronous mode.
    """

    decision: Decision | None
    waited_s: float


class _Open(NamedTuple):
    observation: Observation
    asked: float


class Steering:
    """Steers one trainer's buffer. The same object serves real runs and replay.

    :meth:`before_pull` and :meth:`after_pull` belong to the pulling thread and alternate;
    :meth:`trained` may be called from another; :meth:`close` when pulling has ended.

    Args:
        asker: puts the questions; see :func:`rudder.steering.steer`.
        task: the trainer's static facts, seed and rank. No question goes out after the last of
            its ``total_minibatches``, if these are known.
        mode: does a pull wait for the open question?
        deadline_s: seconds after which an open question is closed as a timeout.
        decisions_path: where decisions are appended (:mod:`rudder.steering.journal`); None =
            nowhere.
        earlier: what an earlier process of the run had come to, to go on from there.
        ask_again: put the earlier questions to the controller again, so that it learns from them.
        history: decisions shown in an observation.
        window: minibatches before and after a decision that are compared at most.
        modelled_seconds: the seconds in the rows come from a model of time.

    Raises:
        ControllerError: the controller could not be reset.
        ResultError: ``decisions_path`` cannot be written.
    """

    def __init__(
        self,
        asker: Asker,
        task: Task,
        *,
        mode: Literal["async", "sync"] = "async",
        deadline_s: float = 30.0,
        decisions_path: Path | None = None,
        earlier: Earlier | None = None,
        ask_again: bool = True,
        history: int = HISTORY,
        window: int = WINDOW,
        modelled_seconds: bool = False,
    ) -> None:
        if mode not in ("async", "sync"):
            raise ValueError(f"mode must be 'async' or 'sync', found {mode!r}")
        if not deadline_s > 0:
            raise ValueError(f"deadline_s must be above 0, found {deadline_s!r}")
        self._asker = asker
        self._task = task
        self._sync = mode == "sync"
        self._deadline_s = deadline_s
        self._modelled = modelled_seconds
        self._collector = Collector(task.facts.feature_bytes)
        self._context = ContextBuilder(task.facts.feature_bytes, history, window)
        self._tally = Tally()
        self._open: _Open | None = None
        self._pulled = 0
        self._questions = 0
        self._last_replacement: int | None = None
        self._closed = False
        asker.start(task)
        before = b"" if earlier is None else earlier.journal
        try:
            self._journal = Journal(decisions_path, before) if decisions_path is not None else None
        except BaseException:
            asker.close()
            raise
        if earlier is not None:
            self._go_on(earlier, ask_again)
        elif self._journal is not None:
            self._journal.task(task)

    def _go_on(self, earlier: Earlier, ask_again: bool) -> None:
        asker = self._asker if ask_again else None
        earlier.retrace(asker, self._task, self._context, self._deadline_s)
        state = earlier.state
        self._collector.load_state(state["collector"])
        self._tally = Tally.from_state(state["tally"])
        self._pulled, self._questions = len(earlier.rows), state["questions"]
        replaced = [step for step, row in enumerate(earlier.rows) if row.replaced]
        self._last_replacement = replaced[-1] if replaced else None
        question = earlier.open_question
        if question is not None:
            self._open = _Open(question, self._asker.now())
            self._asker.ask(question)

    def to_state(self) -> dict[str, Any]:
        """All that :class:`~rudder.steering.resuming.Earlier` needs beside rows and journal, as
        plain values, between two minibatches; the journal's file holds all records by then.

        Raises:
            ResultError: decisions could not be written.
        """
        return {
            "collector": self._collector.to_state(),
            "tally": self._tally.to_state(),
            "questions": self._questions,
            "open": None if self._open is None else self._open.observation.to_dict(),
            "journal": 0 if self._journal is None else self._journal.position(),
        }

    def before_pull(self, minibatch: int) -> Turn:
        """Called when the pull of a minibatch is planned, with its step (from 0).

        Returns the answer that has arrived since, once. Waits in synchronous mode only.
        """
        if minibatch != self._pulled:
            raise ValueError(
                f"the pull of minibatch {minibatch} is planned, but {self._pulled} were pulled: "
                "before_pull and after_pull must alternate"
            )
        if self._open is None:
            return Turn(None, 0.0)
        question = self._open.observation.index
        waited_s = 0.0
        if self._sync:
            left = self._deadline_s - (self._asker.now() - self._open.asked)
            waited_s = self._asker.wait(max(0.0, left))
        decision = self._close_question(self._sync, waited_s, minibatch)
        if decision is None or decision.outcome != "valid":
            return Turn(None, waited_s)
        self._context.applied(question, decision)
        return Turn(decision, waited_s)

    def after_pull(self, row: MinibatchRow) -> None:
        """Called when the pull has returned and the row of its minibatch is final.

        Its ``compute_s`` and ``stall_s`` are not read: :meth:`trained` brings them.
        """
        self._collector.add(row)
        self._settle(self._context.add(row))
        if row.replaced:
            self._tally.replacements += 1
            if self._last_replacement is not None:
                self._tally.intervals[self._pulled - self._last_replacement] += 1
            self._last_replacement = self._pulled
        self._pulled += 1
        total = self._task.facts.total_minibatches
        if self._open is None and (self._pulled < total or not total):
            self._ask(row.epoch)

    def trained(self, step: int, compute_s: float, stall_s: float) -> None:
        """Called when minibatch ``step`` has been trained; from any thread, and cheap."""
        self._collector.trained(compute_s, stall_s)

    def close(self) -> Tally:
        """End the controller, settle what can be settled, and return what it came to.

        An answer that has arrived is still counted; a question that is still open is withdrawn.
        Does not wait for a controller that hangs. Safe to call twice.

        Raises:
            ResultError: decisions could not be written.
        """
        if self._closed:
            return self._tally
        self._closed = True
        if self._open is not None and self._close_question(False, 0.0, None) is None:
            self._open = None
            self._tally.withdrawn += 1
        self._asker.close()
        self._settle(self._context.finish())
        if self._journal is not None:
            self._journal.close()
        return self._tally

    def _ask(self, epoch: int) -> None:
        observation = Observation(
            facts=self._task.facts,
            index=self._questions,
            minibatch=self._pulled,
            epoch=epoch,
            progress=self._pulled / total if (total := self._task.facts.total_minibatches) else 0.0,
            window=self._collector.close_window(),
            history=self._context.history(),
            modelled_seconds=self._modelled,
        )
        self._questions += 1
        self._open = _Open(observation, self._asker.now())
        self._asker.ask(observation)

    def _close_question(
        self, overdue: bool, waited_s: float, minibatch: int | None
    ) -> Decision | None:
        """Close the open question if it is answered or (by the clock or ``overdue``) too late.

        Returns the decision that closed it, which a timeout is too; None = it stays open.
        """
        if self._open is None:
            return None
        observation, asked = self._open
        answer, answer_s = self._asker.poll(), None
        if answer is not None and answer.arrived - asked <= self._deadline_s:
            decision, answer_s = answer.decision, answer.arrived - asked
        elif overdue or self._asker.now() - asked >= self._deadline_s:
            decision = Decision.keep(f"no answer within {self._deadline_s:g} s", outcome="timeout")
        else:
            return None
        self._open = None
        self._tally.closed(decision, answer_s)
        if self._journal is not None:
            self._journal.decision(
                observation,
                decision,
                rank=self._task.rank,
                applied_at=minibatch if decision.outcome == "valid" else None,
                answer_s=answer_s,
                waited_s=waited_s,
                at=time.time(),
            )
        return decision

    def _settle(self, settled: list[Settled]) -> None:
        for item in settled:
            self._tally.effect(item.past)
            if self._journal is not None:
                self._journal.effect(item)
