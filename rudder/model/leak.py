"""Does a suite ask for what a model has seen in its training?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from rudder.model.manifest import Training
from rudder.spec import Spec
from rudder.suite import Suite, SuiteScenario


class Fitted(Protocol):
    """Something that examples shaped: a model, a calibration, a memory."""

    @property
    def name(self) -> str: ...

    @property
    def training(self) -> Training: ...


def leaks(
    manifest: Fitted,
    suite: Suite,
    *,
    seeds: Iterable[int] = (),
    traces: Iterable[str] = (),
) -> list[str]:
    """What of a suite the model's fitting or early stopping has seen, a line each; [] = nothing.

    A shifted scenario (``ood_…``) leaks if it was trained on, whatever its name and seed; one of
    ``ood_graph`` also if any other scenario on its graph was. A scenario in distribution may have
    been trained on, but not at a seed at which it is judged. Links of another rate do not make
    another scenario, but along the axis ``rate``: the accesses are the same.

    Args:
        seeds: at which the suite will be run; compared for scenarios that were trained on.
        traces: ids of access traces that it will be run on.
    """
    trained = {digest: name for name, digest in manifest.training.scenarios.items()}
    graphs = {_graph(graph) for graph in manifest.training.graphs}
    repeated = sorted(set(seeds) & set(manifest.training.seeds))
    found = []
    for item in suite:
        same = next((trained[digest] for digest in _digests(item) if digest in trained), None)
        where = f"{suite.name}/{item.name} ({item.split})"
        if item.axis and same is not None:
            found.append(f"{where}: model {manifest.name!r} was trained on it, as {same!r}")
        elif item.axis == "graph" and _graph(item.scenario.graph) in graphs:
            found.append(
                f"{where}: model {manifest.name!r} was trained on its graph {item.scenario.graph}"
            )
        elif same is not None and repeated:
            told = ", ".join(map(str, repeated))
            found.append(
                f"{where}: model {manifest.name!r} was trained on it at the seeds {told}, too"
            )
    known = set(manifest.training.traces)
    found += [
        f"trace {trace}: model {manifest.name!r} was trained on it"
        for trace in traces
        if trace in known
    ]
    return found


def _digests(item: SuiteScenario) -> Iterator[str]:
    """Of what may be the same; a seed is no part of what a scenario is."""
    scenario = item.scenario.change(seed=0)
    yield scenario.digest()
    if item.axis != "rate":
        yield scenario.change(rate=0.0, rate_at={}).digest()


def _graph(text: str) -> Spec:
    """A graph's spec, defaults spelled out where its dataset is registered here."""
    from rudder.registries import DATASETS

    spec = Spec.parse(text)
    return DATASETS.resolve(spec) if spec.name in DATASETS else spec
