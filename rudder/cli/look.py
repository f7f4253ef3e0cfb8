"""``rudder controllers`` and ``rudder policies``: what is registered, or one of it."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Optional

import typer

from rudder.cli.options import AsJson, Plugins
from rudder.cli.output import emit
from rudder.registries import CONTROLLERS, POLICIES
from rudder.registry import Entry, Registry
from rudder.spec import Spec

Name = Annotated[
    Optional[str],  # noqa: UP045
    typer.Argument(metavar="[NAME]", help="one of them, with parameters if you like"),
]


def controllers(name: Name = None, as_json: AsJson = False, plugin: Plugins = None) -> None:
    """List the controllers, or show one."""
    if name is None:
        emit([{**_row(e), "fixes": dict(e.fields)} for e in CONTROLLERS], as_json=as_json)
        return
    from rudder.steering import build_controller
    from rudder.steering.resolve import fixed_fields

    tags = build_controller(name).tags
    spec = CONTROLLERS.resolve(name)
    found = {**_facts(CONTROLLERS, spec), "fixes": fixed_fields(spec)}
    emit({**found, "tags": dataclasses.asdict(tags)}, as_json=as_json)


def policies(name: Name = None, as_json: AsJson = False, plugin: Plugins = None) -> None:
    """List the replacement policies, or show one."""
    if name is None:
        emit([_row(e) for e in POLICIES], as_json=as_json)
    else:
        emit(_facts(POLICIES, POLICIES.check(name)), as_json=as_json)


def _row(entry: Entry) -> dict[str, Any]:
    return {"name": entry.name, "summary": entry.summary, "params": dict(entry.params)}


def _facts(registry: Registry, spec: Spec) -> dict[str, Any]:
    entry = registry.entry(spec.name)
    return {
        "name": entry.name,
        "summary": entry.summary,
        "params": dict(spec.params),
        "target": entry.target,
        "origin": entry.origin,
    }
