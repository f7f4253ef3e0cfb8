"""``rudder check``: conformance of a controller."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from contextlib import redirect_stdout
from typing import Annotated

import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, plugin_files
from rudder.cli.output import emit, say
from rudder.errors import ConformanceError
from rudder.home import Home
from rudder.spec import Spec


def check(
    controller: Annotated[
        str, typer.Argument(metavar="NAME", help="controller spec, NAME:key=value,…")
    ],
    home: HomeDir = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
) -> None:
    """Check that a controller keeps its contract: one line per check.

    Ends with 1 when a check failed.
    """
    from rudder.conformance import check_controller
    from rudder.model.find import locate

    found = locate(Spec.parse(controller), Home.resolve(home))
    with redirect_stdout(sys.stderr):  # what a controller prints is no report
        records = check_controller(found, plugin_files())
    emit(
        [{"name": r.check, **dataclasses.asdict(r)} for r in records],
        as_json=as_json,
        columns=("check", "status", "seconds", "detail"),
    )
    counts = Counter(r.status for r in records)
    if counts["failed"]:
        raise ConformanceError(
            f"{controller} fails {counts['failed']} of {len(records)} checks: "
            + ", ".join(r.check for r in records if r.status == "failed")
        )
    say(f"{controller}: {counts['passed']} passed, {counts['skipped']} skipped")
