"""``rudder label``: from a collection's decisions to labelled examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Optional

import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, Quiet, Verbose, plugin_files
from rudder.cli.output import emit, progress, say
from rudder.home import Home

from .collection import Collection
from .examples import examples_path
from .label_report import report
from .labelling import RULES, Rule, parts_of
from .labelling import label as label_by
from .measuring import measure_all

BOTH = "both"


def label(
    collection: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="COLLECTION",
            help="name or directory of a collection; default: the newest one",
            show_default=False,
        ),
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            "--rule",
            metavar="SPEC",
            help="counterfactual:horizon=32,tie=0.002, paper, or both",
        ),
    ] = BOTH,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="processes")] = 2,
    home: HomeDir = None,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> None:
    """Label every decision of a collection with what would have been right.

    counterfactual replays both answers from the recorded state; paper judges replacements by what
    followed them. Writes examples-RULE.parquet into the collection. What was measured of a run is
    kept, so that a second call is quick.
    """
    found = Collection.open(collection, Home.resolve(home))
    specs = [RULES.check(spec) for spec in (RULES.names() if rule == BOTH else [rule])]
    rules: list[Rule] = [RULES.build(spec) for spec in specs]
    parts_of(found)  # tells too few seeds before the work begins
    horizon = max(r.horizon for r in rules)
    with progress(quiet=quiet or as_json) as told:
        measured = measure_all(found, horizon, jobs, told, plugin_files())
    tables = [label_by(found, measured, spec) for spec in specs]
    for table in tables:
        table.save(examples_path(found.folder, table.rule.name))
    _show(report(found, tables, sum(m.unapplied for m in measured)), as_json=as_json)


def _show(told: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        emit(told, as_json=True)
        return
    for rule in told["rules"]:
        rows = [
            _row(kind, name, facts)
            for kind, group in (
                ("", {"all": rule}), ("part", rule["parts"]), ("scenario", rule["scenarios"])
            )
            for name, facts in group.items()
        ]  # fmt: skip
        emit(rows, as_json=False, title=f"{rule['rule']}: {rule['file']}")
    if told["agreement"]:
        emit(told["agreement"], as_json=False, title="where both rules have a label")
    if told["unapplied"]:
        say(f"{told['unapplied']:,} questions are left out: their answers never applied")
    for note in [note for rule in told["rules"] for note in rule["notes"]]:
        say(f"note: {note}")


def _row(kind: str, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "of": kind,
        "name": name,
        "examples": facts["examples"],
        "replace_share": facts["replace_share"],
        "dropped": facts["dropped"],
    }
