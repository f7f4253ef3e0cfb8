"""``rudder controllers``, ``policies`` and ``suites``: what is registered, or one of it."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Optional

import typer

from rudder.cli.options import AsJson, Plugins
from rudder.cli.output import emit
from rudder.errors import UsageError
from rudder.registries import CONTROLLERS, POLICIES, SUITES
from rudder.registry import Entry, Registry
from rudder.spec import Spec
from rudder.suite import find_suite

Name = Annotated[
    Optional[str],  # noqa: UP045
    typer.Argument(metavar="[NAME]", help="one of them, with parameters if you like"),
]


def controllers(
    name: Name = None,
    prompt: Annotated[
        bool,
        typer.Option(
            "--prompt",
            show_default=False,
            help="show what would be sent to its model, for a made-up run's last observation",
        ),
    ] = False,
    as_json: AsJson = False,
    plugin: Plugins = None,
) -> None:
    """List the controllers, or show one."""
    if prompt:
        _show_prompt(name, as_json)
        return
    if name is None:
        emit([{**_row(e), "fixes": dict(e.fields)} for e in CONTROLLERS], as_json=as_json)
        return
    from rudder.steering import build_controller
    from rudder.steering.resolve import fixed_fields

    tags = build_controller(name).tags
    spec = CONTROLLERS.resolve(name)
    found = {**_facts(CONTROLLERS, spec), "fixes": fixed_fields(spec)}
    emit({**found, "tags": dataclasses.asdict(tags)}, as_json=as_json)


def _show_prompt(name: str | None, as_json: bool) -> None:
    from rudder.conformance.situations import episode, task
    from rudder.steering import build_controller

    if name is None:
        raise UsageError("--prompt shows what one controller sends: name it")
    texts = build_controller(name).preview(task(), episode())
    if not texts:
        raise UsageError(f"controller {name!r} asks no model")
    if as_json:
        emit(texts, as_json=True)
        return
    for part, text in texts.items():
        # Not through a table: what is sent is shown as it is.
        typer.echo(f"--- {part} ---\n{text}\n")


def policies(name: Name = None, as_json: AsJson = False, plugin: Plugins = None) -> None:
    """List the replacement policies, or show one."""
    if name is None:
        emit([_row(e) for e in POLICIES], as_json=as_json)
    else:
        emit(_facts(POLICIES, POLICIES.check(name)), as_json=as_json)


def suites(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[NAME|FILE.toml]", help="one of them, or a file"),
    ] = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
) -> None:
    """List the suites of scenarios, or show the scenarios of one."""
    if name is None:
        emit([{"name": e.name, "summary": e.summary, "origin": e.origin} for e in SUITES],
             as_json=as_json)  # fmt: skip
        return
    suite = find_suite(name)
    scenarios = [
        {
            "name": item.name,
            "split": item.split,
            "changes": dict(item.changes),
            "summary": item.summary,
            "digest": item.scenario.digest(),
            "scenario": item.scenario.model_dump(mode="json"),
        }
        for item in suite
    ]
    facts = {
        "name": suite.name,
        "summary": suite.summary,
        "path": suite.path,
        "digest": suite.digest(),
        "splits": {s: sum(item.split == s for item in suite) for s in suite.splits},
        "base": dict(suite.base),
    }
    if as_json:
        emit({**facts, "scenarios": scenarios}, as_json=True)
        return
    emit(facts, as_json=False)
    emit(scenarios, as_json=False, columns=("name", "split", "changes"), title="Scenarios")


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
