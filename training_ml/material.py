"""From a labelled collection to what models are fitted to."""

from __future__ import annotations

from rudder.model import Training

from .checks import TEST
from .collection import Collection
from .examples import ExampleTable, examples_path
from .fit import Material


def material_of(collection: Collection, rule: str) -> Material:
    """The examples that a rule labelled in a collection, by part, and where they came from.

    Raises:
        MissingPathError: it was not labelled by this rule.
        CollectionError, TrainingDataError: see :meth:`ExampleTable.read`.
    """
    path = examples_path(collection.folder, rule)
    table = ExampleTable.read(path, collection.digest())
    parts = table.parts()
    return Material(
        parts,
        {name: table.gains(name) for name in parts},
        training_of(collection, table),
    )


def training_of(collection: Collection, table: ExampleTable) -> Training:
    """What fitting or early stopping sees of a collection: all that is not for testing only."""
    pairs = table.table.group_by(["run", "part"]).aggregate([]).to_pydict()
    seen = {run for run, part in zip(pairs["run"], pairs["part"], strict=True) if part != TEST}
    runs = [run for run in collection.runs if run.id in seen]
    return Training(
        suite=collection.request.suite,
        suite_digest=collection.request.suite_digest,
        scenarios={run.scenario: run.scenario_digest for run in runs},
        graphs=tuple(sorted({run.graph for run in runs})),
        traces=tuple(sorted({run.trace_id for run in runs})),
        seeds=tuple(sorted({run.seed for run in runs})),
        collection=collection.digest(),
        label=str(table.rule),
        examples=table.counts(),
    )
