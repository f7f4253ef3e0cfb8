"""Exploring schedules: what steers the runs that classifiers learn from."""

from __future__ import annotations

from collections.abc import Sequence

from rudder.errors import UsageError
from rudder.scenario import Scenario
from rudder.steering.resolve import fixed_fields, resolve

DEFAULT = (
    "random:p=0.2",
    "fixed:interval=4",
    "fixed:interval=16",
    "threshold",
    "always",
)
"""Buffers that are kept fresh, left to age, and anything between. The first one steers the real
runs, where there are any: each of its answers has a known probability."""


def spelled_out(given: Sequence[str]) -> tuple[str, ...]:
    """Controller specs as text, defaults spelled out.

    Raises:
        UsageError: none, one twice, an unknown name or parameter, or a controller that changes
            the scenario.
    """
    found: list[str] = []
    for text in given:
        spec = resolve(Scenario.make(), text).spec
        if fixed := fixed_fields(spec):
            raise UsageError(
                f"schedule {text!r} fixes {', '.join(fixed)}, so that it would run another "
                "scenario than the suite's; take a controller that fixes nothing, such as "
                "fixed:interval=16"
            )
        if str(spec) in found:
            raise UsageError(f"schedule {str(spec)!r} is given twice; leave one of them out")
        found.append(str(spec))
    if not found:
        raise UsageError(f"no schedule to collect under; the usual ones: {' '.join(DEFAULT)}")
    return tuple(found)
