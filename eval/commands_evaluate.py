"""``rudder evaluate``: controllers × scenarios × seeds."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Literal, Optional

import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, Quiet, Verbose, plugin_files
from rudder.cli.output import emit, say
from rudder.cli.train import TrackingUri
from rudder.errors import UsageError
from rudder.home import Home
from rudder.spec import split_specs
from rudder.suite import find_suite
from rudder.timing import Machine

from .board import board, words
from .cells import WORTH_DECIDING, Cell
from .contenders import contenders
from .headroom import headroom_table
from .machines import bundled
from .requests import FIRST_SEED, JOBS, Request
from .robustness.metrics import (
    COMMUNICATION,
    EPOCH_SECONDS,
    FETCHED,
    HITS,
    ORACLE_REGRET,
    PASS_AT_1,
    REGRET,
    Metric,
    measure,
)
from .runner import Outcome, evaluate

SEEDS = 10
_Texts = Optional[list[str]]  # noqa: UP045


def evaluate_command(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="name of a suite, or a TOML file of one")
    ],
    controllers: Annotated[
        _Texts,
        typer.Option(
            "--controllers",
            "--controller",
            "-c",
            metavar="A,B,…",
            help="controllers to compare, separated by commas; may be given several times",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="seeds of each scenario")] = SEEDS,
    seeds_of: Annotated[
        _Texts,
        typer.Option(
            "--seeds-of",
            metavar="NAME=N",
            help="fewer seeds for this controller; may be given several times",
            show_default=False,
        ),
    ] = None,
    first_seed: Annotated[
        int,
        typer.Option(min=0, help="seeds are this one and those that follow; training uses 0, 1, …"),
    ] = FIRST_SEED,
    engine: Annotated[
        Literal["replay", "distdgl"],
        typer.Option(help="replays of sampled traces, the same for all controllers; or real runs"),
    ] = "replay",
    scenarios: Annotated[
        _Texts,
        typer.Option(
            "--scenarios",
            metavar="PATTERN",
            help="only scenarios of this name (* and ?); may be given several times",
            show_default=False,
        ),
    ] = None,
    splits: Annotated[
        _Texts,
        typer.Option(
            "--splits",
            metavar="SPLIT",
            help="only this split, such as id_val or 'ood_*'; may be given several times",
            show_default=False,
        ),
    ] = None,
    controls: Annotated[
        bool,
        typer.Option(
            help="run each learned controller's controls too: random at its rate, and its own "
            "answers in another order"
        ),
    ] = True,
    name: Annotated[
        str, typer.Option(help="of the sweep; default: the suite's", show_default=False)
    ] = "",
    jobs: Annotated[int, typer.Option(min=1, help="traces at a time (replay)")] = JOBS,
    time: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="calibration (rudder calibrate-time) of the clock on which replays pass and "
            "answers take their latency_s",
            show_default="of four trainers on two cores",
        ),
    ] = None,
    track: Annotated[bool, typer.Option(help="log the sweep and its cells to MLflow")] = True,
    tracking_uri: TrackingUri = None,
    home: HomeDir = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run controllers through the scenarios of SUITE, seed by seed, and compare them.

    The sweep lies in sweeps/ of the data directory. Asked again, it goes on where it was ended: a
    finished cell is never run twice, a failed one is tried again. What timing could save at most
    comes first: below 2 % a scenario says nothing about controllers.
    """
    place = Home.resolve(home)
    chosen = find_suite(suite).select(_parts(scenarios), _parts(splits))
    texts = [text for given in controllers or () for text in split_specs(given)]
    request = Request(
        chosen, contenders(texts, place, _fewer(seeds_of or ())),
        range(first_seed, first_seed + seeds), engine, name, controls, jobs,
        bundled() if time is None else Machine.load(time.expanduser().resolve()),
    )  # fmt: skip
    start = monotonic()
    with board(jobs if engine == "replay" else 1, quiet=quiet or as_json) as watch:
        outcome = evaluate(
            request, place, track=track, tracking_uri=tracking_uri, plugins=plugin_files(),
            watch=watch,
        )  # fmt: skip
    found = told(outcome, monotonic() - start)
    if as_json:
        emit(found, as_json=True)
    else:
        _show(found)
    if found["failed"]:
        raise typer.Exit(1)


def told(outcome: Outcome, seconds: float) -> dict[str, Any]:
    """What a sweep came to, as plain values."""
    head, cells = outcome.sweep.head, outcome.cells
    names = {one["name"] for one in head["controllers"]}
    asked = sum(cell.controller in names for cell in cells)
    controls = sum(cell.family == "control" for cell in cells)
    failures = [cell for cell in cells if not cell.finished]
    return {
        "sweep": outcome.sweep.name,
        "folder": outcome.sweep.folder,
        "suite": head["suite"]["name"],
        "suite_digest": head["suite"]["digest"],
        "engine": head["engine"],
        "seeds": head["seeds"],
        "headroom": headroom_table(cells),
        "table": table(cells),
        "cells": asked,
        "control_cells": controls,
        "headroom_cells": len(cells) - asked - controls,
        "failed": len(failures),
        "failures": [
            {"controller": c.controller, "scenario": c.scenario, "seed": c.seed,
             "run_id": c.run_id, "error": c.error}
            for c in failures
        ],
        "never_valid": never_valid(cells),
        "run_now": outcome.run_now,
        "mlflow_run_id": outcome.parent,
        "seconds": seconds,
    }  # fmt: skip


_MEANS = (COMMUNICATION, REGRET, ORACLE_REGRET, HITS, EPOCH_SECONDS, PASS_AT_1, FETCHED)


def table(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """A row per controller and split: means over scenarios and seeds, and how many runs failed."""
    groups: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        if cell.family != "constant":
            groups[cell.controller, cell.split].append(cell)
    return [
        {
            "controller": controller,
            "family": own[0].family,
            "split": split,
            "runs": sum(cell.finished for cell in own),
            "failed": sum(not cell.finished for cell in own),
            **{metric.key: _mean(own, metric) for metric in _MEANS},
        }
        for (controller, split), own in sorted(groups.items(), key=lambda one: one[0][1])
    ]


def never_valid(cells: Sequence[Cell]) -> dict[str, int]:
    """Controllers none of whose answers was valid, by the number of such runs.

    Their buffer was kept throughout: they look as good as one that never replaces.
    """
    return dict(Counter(cell.controller for cell in cells if cell.value("valid_share") == 0))


def _mean(cells: Sequence[Cell], metric: Metric) -> float | None:
    values = [value for cell in cells if math.isfinite(value := measure(cell, metric))]
    return sum(values) / len(values) if values else None


def _show(found: dict[str, Any]) -> None:
    emit(
        found["headroom"], as_json=False,
        title=f"What timing can save: best constant schedule above timing-oracle (below "
        f"{WORTH_DECIDING:.0%}: nothing to decide)",
    )  # fmt: skip
    columns = ["controller", "split", "runs", "failed", *(metric.key for metric in _MEANS[:5])]
    emit(found["table"], as_json=False, columns=columns, title="\nMeans over scenarios and seeds")
    for failure in found["failures"]:
        say(
            f"failed: {failure['controller']}, {failure['scenario']}, seed {failure['seed']}: "
            f"{failure['error']}"
        )
    for name, runs in found["never_valid"].items():
        say(f"{name}: no valid answer in {runs} of its runs; its buffer was kept throughout")
    say(
        f"{found['cells']} cells, {found['control_cells']} controls, {found['headroom_cells']} "
        f"runs for headroom; {found['run_now']} of them run now, in {words(found['seconds'])}; "
        f"{found['failed']} failed"
    )
    say(f"{found['folder']}; next: 'rudder report {found['sweep']}' ranks and draws it")
    if found["mlflow_run_id"] is not None:
        say("its runs in MLflow: 'rudder ui'")


def _parts(given: Sequence[str] | None) -> list[str]:
    """Patterns; several may stand in one option, but a name may hold commas after its ``/``."""
    return [
        part
        for text in given or ()
        for part in ([text] if "/" in text else text.split(","))
        if part
    ]


def _fewer(given: Sequence[str]) -> dict[str, int]:
    found = {}
    for text in given:
        name, _, number = text.rpartition("=")
        if not name or not number.isdecimal() or not int(number):
            raise UsageError(f"--seeds-of {text!r}: write CONTROLLER=NUMBER, such as smollm2=5")
        found[name] = int(number)
    return found
