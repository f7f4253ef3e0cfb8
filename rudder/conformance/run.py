"""Running the checks: one record each, and one test id per (controller, check)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rudder.conformance.checks import CHECKS, Check
from rudder.conformance.subject import Hangs, Subject
from rudder.errors import ConformanceError, UsageError
from rudder.plugins import PluginFile
from rudder.spec import Spec

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

ESSENTIAL = ("builds", "resets")
"""Where one of these fails nothing else can be said."""


@dataclass(frozen=True)
class CheckRecord:
    """What came of one check.

    Attributes:
        controller, check: names.
        status: passed, failed or skipped.
        detail: what was found, or why it was skipped; "" when passed.
        seconds: how long it took.
    """

    controller: str
    check: str
    status: Literal["passed", "failed", "skipped"]
    detail: str = ""
    seconds: float = 0.0


def run_check(subject: Subject, check: Check) -> CheckRecord:
    """Run one check on fresh controllers; whatever a controller raises becomes a record.

    Raises:
        UsageError: the controller refuses its parameters.
    """
    return _run(subject, check)[0]


def _run(subject: Subject, check: Check) -> tuple[CheckRecord, bool]:
    """The record of a check, and whether the controller hung."""
    start = time.perf_counter()
    error: Exception | None = None
    try:
        check.run(subject)
    except UsageError as raised:
        if check.name == ESSENTIAL[0]:
            raise  # not the controller is wrong, but how it was asked for
        error = raised
    except Exception as raised:  # noqa: BLE001 - whatever a controller raises is a finding
        error = raised
    seconds = time.perf_counter() - start
    if error is None:
        return CheckRecord(subject.name, check.name, "passed", "", seconds), False
    known = isinstance(error, ConformanceError)
    detail = str(error) if known else f"{type(error).__name__}: {error}"
    record = CheckRecord(subject.name, check.name, "failed", detail, seconds)
    return record, isinstance(error, Hangs)


def check_controller(
    controller: str | Spec | Mapping[str, Any] | Subject, plugins: Sequence[PluginFile] = ()
) -> list[CheckRecord]:
    """Check a controller by every check; one record each, in the order of :data:`CHECKS`.

    After a check that hangs the others are skipped: each would wait as long again.

    Args:
        controller: a spec, or a subject that is in no registry.
        plugins: plug-in files that a process of its own loads first.

    Raises:
        UnknownNameError, SpecError: no such controller, parameter or value.
    """
    subject = controller if isinstance(controller, Subject) else Subject.of(controller, plugins)
    records: list[CheckRecord] = []
    stopped = ""
    for check in CHECKS:
        # The tags can be read once the controller is known to build.
        if reason := stopped or (check.left_out(subject.tags) if records else ""):
            records.append(CheckRecord(subject.name, check.name, "skipped", reason))
            continue
        record, hangs = _run(subject, check)
        records.append(record)
        if hangs:
            stopped = f"{check.name} hangs"
        elif record.status == "failed" and check.name in ESSENTIAL:
            stopped = f"{check.name} failed"
    return records


def controller_checks(specs: Iterable[str]) -> list[ParameterSet]:
    """Parameters ``(subject, check)`` for pytest, one id each; only the checks that apply.

    >>> @pytest.mark.parametrize(("subject", "check"), controller_checks(["always"]))
    ... def test_conformance(subject, check):
    ...     check.run(subject)
    """
    import pytest

    found = []
    for spec in specs:
        subject = Subject.of(spec)
        tags = subject.tags
        marks = [pytest.mark.llm] if tags.llm else []
        found += [
            pytest.param(subject, check, id=f"{subject.name}-{check.name}", marks=marks)
            for check in CHECKS
            if not check.left_out(tags)
        ]
    return found
