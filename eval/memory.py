"""What a controller costs in memory: measured once per sweep, in a process of its own.

In a sweep a process replays cell after cell, whatever they load stays loaded, and nothing can be
told apart. So each learned controller and agent answers one made-up question in a fresh process;
what that held at most, beyond one in which ``always`` answers, is what the controller adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

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
_MB = 1e6


def measured(
    sweep: Sweep,
    contenders: Sequence[Contender],
    plugins: Sequence[PluginFile],
    progress: Progress = lambda phase, share: None,
) -> dict[str, float | None]:
    """MB (10^6 bytes) by name; measured where the sweep does not know them, and kept in its head.

    What is neither learned nor an agent holds some numbers: 0. None where it could not be asked,
    and of an oracle, which needs a trace.
    """
    known: Mapping[str, float | None] = sweep.head.get("memory_mb") or {}
    learned = [one for one in contenders if one.family in LEARNED]
    missing = [one for one in learned if _key(one) not in known]
    found = dict(known)
    for number, one in enumerate(missing):
        found[_key(one)] = added_mb(own_params(one.spec), tuple(plugins))
        sweep.save(memory_mb=found)  # a killed sweep measures the others alone
        progress("memory", (number + 1) / len(missing))
    return {
        one.name: found[_key(one)] if one in learned else None if one.family == "oracle" else 0.0
        for one in contenders
    }


def added_mb(spec: Spec, plugins: tuple[PluginFile, ...] = ()) -> float | None:
    """What a process in which a controller answers holds beyond one in which ``always`` does."""
    peak = _peak_bytes(spec, plugins)
    if peak is None:
        return None
    bare = _bare_bytes()
    return None if bare is None else max(0.0, (peak - bare) / _MB)


@cache
def _bare_bytes() -> int | None:
    return _peak_bytes(BARE, ())


def _peak_bytes(spec: Spec, plugins: tuple[PluginFile, ...]) -> int | None:
    controller = ProcessController(spec, plugins, restarts=0)
    try:
        controller.reset(task())
        controller.decide(episode()[-1])
        return controller.peak_bytes()
    except ControllerError:
        return None  # why, its cells will tell
    finally:
        controller.close()


def _key(one: Contender) -> str:
    return f"{one.content} {one.spec.to_json()}"
