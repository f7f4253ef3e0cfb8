"""A controller under check, asked in a thread so that one that hangs is found out."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rudder.controller import Capabilities, Controller
from rudder.decision import Decision
from rudder.errors import ConformanceError
from rudder.observation import Observation, Task
from rudder.plugins import PluginFile
from rudder.spec import Spec
from rudder.steering.resolve import build_controller

T = TypeVar("T")

RESET_TIMEOUT_S = 600.0


class Hangs(ConformanceError):
    """The controller did not come back."""


@dataclass(frozen=True)
class Subject:
    """What is checked: a name, and how to build a fresh controller of it.

    Attributes:
        name: for records and test ids.
        build: builds a controller that has not been reset.
        spec: its resolved spec; None for one that is in no registry.
        plugins: plug-in files that a process of its own loads first.
        reset_timeout_s: seconds that a reset may take.
    """

    name: str
    build: Callable[[], Controller]
    spec: Spec | None = None
    plugins: tuple[PluginFile, ...] = ()
    reset_timeout_s: float = RESET_TIMEOUT_S

    @classmethod
    def of(
        cls, spec: str | Spec | Mapping[str, Any], plugins: Sequence[PluginFile] = ()
    ) -> Subject:
        """The subject behind a spec."""
        parsed = Spec.parse(spec)
        return cls(str(parsed), lambda: build_controller(parsed), parsed, tuple(plugins))

    @property
    def tags(self) -> Capabilities:
        return self.build().tags

    def session(self, controller: Controller | None = None) -> Session:
        """A controller (by default a fresh one) and the thread that it is used in."""
        return Session(self, controller if controller is not None else self.build())

    def answers(self, observations: Sequence[Observation], task: Task) -> list[Decision]:
        """What a fresh controller answers in a whole run, latencies and transcripts left out."""
        with self.session() as session:
            session.reset(task)
            return session.answers(observations)


class Session:
    """Calls a controller's methods in one thread, as an engine does, with a limit on each.

    Raises:
        Hangs: a call did not come back within its limit.
    """

    def __init__(self, subject: Subject, controller: Controller) -> None:
        self.controller = controller
        self._subject = subject
        self._deadline_s = subject.tags.deadline_s
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="rudder-conformance", daemon=True).start()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None or not issubclass(kind, Hangs):
                self.close()
        finally:
            self._calls.put(None)

    def reset(self, task: Task) -> None:
        self._within(self._subject.reset_timeout_s, "reset", lambda: self.controller.reset(task))

    def decide(self, observation: Observation) -> Decision:
        """The public answer; latency and transcript, which tell how it came about, left out."""
        decision = self._within(
            self._deadline_s, "decide", lambda: self.controller.decide(observation)
        )
        return dataclasses.replace(decision, latency_s=0.0, details=None)

    def raw(self, observation: Observation) -> Any:
        """What the overridden hook returns, before the public method mends it."""
        return self._within(
            self._deadline_s, "decide", lambda: self.controller._decide(observation)
        )

    def answers(self, observations: Sequence[Observation]) -> list[Decision]:
        return [self.decide(observation) for observation in observations]

    def close(self) -> None:
        self._within(self._deadline_s, "close", self.controller.close)

    def _within(self, seconds: float, what: str, call: Callable[[], T]) -> T:
        done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                done.put((call(), None))
            except BaseException as error:  # noqa: BLE001 - raised again in the asking thread
                done.put((None, error))

        self._calls.put(work)
        try:
            value, error = done.get(timeout=seconds)
        except queue.Empty:
            raise Hangs(f"{what} did not come back within {seconds:g} s") from None
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
