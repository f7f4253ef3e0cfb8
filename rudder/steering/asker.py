"""Who puts a question to the controller and when its answer arrives.

Three ways, one interface: a thread of the trainer, a process of its own behind such a thread
(:mod:`rudder.steering.process`), and in line with modelled latency for replay.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from rudder.controller import Controller
from rudder.decision import Decision
from rudder.errors import ControllerError
from rudder.observation import Observation, Task

_log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """A decision, the index of the observation that it answers, and when it arrived."""

    question: int
    decision: Decision
    arrived: float


class Asker(ABC):
    """Puts one question at a time; answers to earlier, abandoned questions are dropped."""

    @abstractmethod
    def now(self) -> float:
        """Seconds on the clock that arrivals are measured by."""

    @abstractmethod
    def start(self, task: Task) -> None:
        """Reset the controller; returns when it is ready.

        Raises:
            ControllerError: the controller could not be reset.
        """

    @abstractmethod
    def ask(self, observation: Observation) -> None:
        """Hand over a question; never waits for the controller."""

    @abstractmethod
    def poll(self) -> Answer | None:
        """The answer to the last question if it has arrived."""

    @abstractmethod
    def wait(self, timeout_s: float) -> float:
        """Wait until the last question is answered, at most ``timeout_s``; returns how long.

        On a modelled clock nobody sleeps: the caller advances the clock by what is returned,
        and :meth:`poll` shows the answer from here on if it came in time.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the controller; does not wait for one that hangs. Safe to call twice."""


class ThreadAsker(Asker):
    """Asks in a daemon thread of the trainer, in which the controller is also reset and closed.

    Args:
        controller: asked in the thread only.
        start_timeout_s: seconds that the reset may take.
        grace_s: seconds that a busy controller is given at the end.
        interrupt: called from outside the thread when the grace has passed, to free it.
    """

    def __init__(
        self,
        controller: Controller,
        *,
        start_timeout_s: float = 600.0,
        grace_s: float = 0.5,
        interrupt: Callable[[], None] | None = None,
    ) -> None:
        self._controller = controller
        self._start_timeout_s = start_timeout_s
        self._grace_s = grace_s
        self._interrupt = interrupt
        self._changed = threading.Condition()
        self._question: Observation | None = None
        self._answer: Answer | None = None
        self._last_index = -1
        self._ready = False
        self._failure: BaseException | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    def now(self) -> float:
        return time.perf_counter()

    def start(self, task: Task) -> None:
        name = type(self._controller).__name__
        self._thread = threading.Thread(
            target=self._run, args=(task,), name="rudder-controller", daemon=True
        )
        self._thread.start()
        with self._changed:
            self._changed.wait_for(
                lambda: self._ready or self._failure is not None, self._start_timeout_s
            )
            ready, failure = self._ready, self._failure
        if ready:
            return
        self.close()
        if failure is None:
            raise ControllerError(
                f"{name} was not ready after {self._start_timeout_s:g} s; its reset hangs"
            )
        if isinstance(failure, ControllerError):
            raise failure
        raise ControllerError(
            f"{name} could not be reset: {type(failure).__name__}: {failure}"
        ) from failure

    def ask(self, observation: Observation) -> None:
        with self._changed:
            self._question = observation
            self._last_index = observation.index
            self._answer = None
            self._changed.notify_all()

    def poll(self) -> Answer | None:
        with self._changed:
            return self._answer

    def wait(self, timeout_s: float) -> float:
        start = self.now()
        with self._changed:
            self._changed.wait_for(lambda: self._answer is not None, timeout_s)
        return self.now() - start

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(self._grace_s)
        if thread.is_alive() and self._interrupt is not None:
            self._interrupt()
            thread.join(self._grace_s)
        if thread.is_alive():
            _log.warning(
                "%s is still busy at the end and is left behind in its thread",
                type(self._controller).__name__,
            )

    def _run(self, task: Task) -> None:
        try:
            self._controller.reset(task)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits in start
            self._controller.close()
            with self._changed:
                self._failure = error
                self._changed.notify_all()
            return
        with self._changed:
            self._ready = True
            self._changed.notify_all()
        try:
            while (observation := self._next()) is not None:
                self._put(observation.index, self._decide(observation))
        finally:
            self._controller.close()

    def _next(self) -> Observation | None:
        with self._changed:
            self._changed.wait_for(lambda: self._question is not None or self._closing)
            observation, self._question = self._question, None
            return None if self._closing else observation

    def _put(self, index: int, decision: Decision) -> None:
        with self._changed:
            if index != self._last_index:
                _log.warning("the answer to observation %d came too late and is dropped", index)
                return
            self._answer = Answer(index, decision, self.now())
            self._changed.notify_all()

    def _decide(self, observation: Observation) -> Decision:
        try:
            return self._controller.decide(observation)
        except SystemExit as error:  # a library that exits must not end the thread in silence
            return Decision.keep(f"SystemExit: {error}", outcome="error")


class InlineAsker(Asker):
    """Asks at once, and shows the answer when a modelled latency has passed on a modelled clock.

    Args:
        controller: asked in the calling thread.
        clock: seconds of modelled time; the engine advances it.
        latency_s: seconds that every answer takes; None = as long as it really took.
    """

    def __init__(
        self, controller: Controller, clock: Callable[[], float], latency_s: float | None = 0.0
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._latency_s = latency_s
        self._answer: Answer | None = None
        self._busy_until = 0.0
        self._seen_until = -math.inf

    def now(self) -> float:
        return self._clock()

    def start(self, task: Task) -> None:
        self._busy_until = self.now()
        self._controller.reset(task)

    def ask(self, observation: Observation) -> None:
        decision = self._controller.decide(observation)
        latency = decision.latency_s if self._latency_s is None else self._latency_s
        # What the controller is shown of its own past must be the modelled time too.
        decision = dataclasses.replace(decision, latency_s=latency)
        # One controller answers one question at a time, also one that was given up.
        self._busy_until = max(self.now(), self._busy_until) + latency
        self._answer = Answer(observation.index, decision, self._busy_until)

    def poll(self) -> Answer | None:
        if self._answer is not None and self._answer.arrived <= max(self.now(), self._seen_until):
            return self._answer
        return None

    def wait(self, timeout_s: float) -> float:
        if self._answer is None:
            return timeout_s
        waited = min(max(0.0, self._answer.arrived - self.now()), timeout_s)
        # now + (arrived - now) may round to just below arrived: remember what was waited for.
        in_time = self._answer.arrived - self.now() <= timeout_s
        self._seen_until = self._answer.arrived if in_time else self.now() + waited
        return waited

    def close(self) -> None:
        self._controller.close()
