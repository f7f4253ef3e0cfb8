"""What a controller's answers cost in seconds and memory: measured once per sweep.

In a sweep a process replays cell after cell, whatever they load stays loaded, nothing can be told
apart, and answers take the seconds that they are told. So each learned controller and agent answers
some made-up questions in a fresh process: the median of its seconds is what an answer takes, and
what the process held at most, beyond one in which ``always`` answers, is what the controller adds.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rudder.conformance.situations import episode, task
from rudder.engine import Progress
from rudder.errors import ControllerError
from rudder.plugins import PluginFile
from rudder.spec import Spec
from rudder.steering.process import ProcessController
from rudder.steering.resolve import own_params

from .contenders import LEARNED, Contender
from .sweep import Sweep

BARE = Spec("always")
ANSWERS = 5
"""Timed, at the end of an episode, where a history is full; one before them warms up."""
_MB = 1e6


@dataclass(frozen=True)
class Costs:
    """Of a controller's answers; None = not known.

    Attributes:
        memory_mb: MB (10^6 bytes) that it adds to a process.
        answer_s: seconds, the median.
    """

    memory_mb: float | None = None
    answer_s: float | None = None


def measured(
    sweep: Sweep,
    contenders: Sequence[Contender],
    plugins: Sequence[PluginFile],
    progress: Progress = lambda phase, share: None,
) -> dict[str, Costs]:
    """By name; measured where the sweep does not know them, and kept in its head.

    What is neither learned nor an agent compares some numbers: 0 of both. None where it could not
    be asked, and of an oracle, which needs a trace.
    """
    found: dict[str, Mapping[str, Any]] = dict(sweep.head.get("costs") or {})
    learned = [one for one in contenders if one.family in LEARNED]
    missing = [one for one in learned if _key(one) not in found]
    for number, one in enumerate(missing):
        found[_key(one)] = dataclasses.asdict(costs_of(own_params(one.spec), tuple(plugins)))
        # A killed sweep measures the others alone; what gave no answer may do so another time.
        sweep.save(costs={key: of for key, of in found.items() if of["answer_s"] is not None})
        progress("costs", (number + 1) / len(missing))
    return {
        one.name: Costs(**found[_key(one)]) if one in learned
        else Costs() if one.family == "oracle" else Costs(0.0, 0.0)
        for one in contenders
    }  # fmt: skip


def costs_of(spec: Spec, plugins: tuple[PluginFile, ...] = ()) -> Costs:
    """What the answers of a controller cost in a process of its own."""
    found = _answers(spec, plugins)
    if found is None:
        return Costs()
    peak, seconds = found
    bare = _bare_bytes()
    added = None if bare is None or peak is None else max(0.0, (peak - bare) / _MB)
    return Costs(added, statistics.median(seconds) if seconds else None)


@cache
def _bare_bytes() -> int | None:
    found = _answers(BARE, ())
    return None if found is None else found[0]


def _answers(spec: Spec, plugins: tuple[PluginFile, ...]) -> tuple[int | None, list[float]] | None:
    """Most bytes held by its process, and seconds of the answers that came."""
    controller = ProcessController(spec, plugins, restarts=0)
    try:
        controller.reset(task())
        came = []
        for one in episode()[-ANSWERS - 1 :]:
            answer = controller.decide(one)
            if answer.outcome == "error":
                break  # it would be the same again, and take its time
            came.append(answer.latency_s)
        return controller.peak_bytes(), came[1:]
    except ControllerError:
        return None  # why, its cells will tell
    finally:
        controller.close()


def _key(one: Contender) -> str:
    return f"{one.content} {one.spec.to_json()}"
