"""``rudder calibrate``: a decision threshold for an agent, fitted to labelled situations."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from rudder.cli.options import AsJson, HomeDir, Plugins, Quiet, Verbose
from rudder.cli.output import emit, progress, say
from rudder.errors import PathTakenError
from rudder.home import Home
from rudder.model.calibration import CALIBRATION_FILE
from rudder.model.find import locate
from rudder.spec import Spec

from .calibrate import calibrate as fit_threshold
from .collection import Collection
from .examples import ExampleTable, examples_path
from .store import check_name


def calibrate(
    controller: Annotated[
        str, typer.Argument(metavar="CONTROLLER", help="spec of an agent that scores its answers")
    ],
    collection: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--collection", metavar="NAME", help="a labelled one; default: the newest"),
    ] = None,
    rule: Annotated[str, typer.Option("--rule", help="label rule")] = "counterfactual",
    count: Annotated[
        int, typer.Option("--situations", min=20, help="to fit to; as many to judge by")
    ] = 60,
    seed: Annotated[int, typer.Option("--seed", min=0, help="of the draw of situations")] = 0,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--name", metavar="NAME", help="default: CONTROLLER-calibration"),
    ] = None,
    home: HomeDir = None,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> None:
    """Fit the p(replace) from which an agent's answer counts as replace.

    Use it as CONTROLLER:calibration=NAME. It holds for the same model, weights, prompt template and
    options alone, and every result that it had a part in is marked as not zero-shot.
    """
    place = Home.resolve(home)
    spec = locate(Spec.parse(controller), place)
    name = name or f"{spec.name}-calibration"
    check_name(name)
    folder = place.models / name
    if folder.exists() and not (folder / CALIBRATION_FILE).is_file():
        raise PathTakenError(f"{folder} is no calibration; choose another --name")
    found = Collection.open(collection, place)
    table = ExampleTable.read(examples_path(found.folder, rule), found.digest())
    with progress(quiet=quiet or as_json) as told:
        fitted = fit_threshold(name, spec, found, table, told, count=count, seed=seed)
    fitted.write(folder)
    emit(
        {
            "name": name,
            "controller": str(spec),
            "threshold": fitted.threshold,
            **fitted.metrics,
            **fitted.training.examples,
            "folder": str(folder),
        },
        as_json=as_json,
    )
    say(f"use it: {spec.name}:calibration={name}")
