"""Who is better than whom, and who cannot be told apart."""

from __future__ import annotations

import itertools
import string
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..cells import Cell
from .grid import Comparison, Grid, compare
from .intervals import LEVEL, Estimate, Scope
from .metrics import COMMUNICATION, Metric


@dataclass(frozen=True)
class Standing:
    """One controller in a ranking.

    Attributes:
        controller: its name.
        best, worst: the ranks that it may have, counted from 1: ``best - 1`` controllers are told
            to be better, and all behind ``worst`` to be worse.
        letters: controllers that share one cannot be told apart.
        mean: over scenarios, as readers know the metric.
        runs: that have a value.
        missing: of its comparisons, the pairs in which one side has none.
    """

    controller: str
    best: int
    worst: int
    letters: str
    mean: Estimate
    runs: int
    missing: int


@dataclass(frozen=True)
class Ranking:
    """Controllers from the best to the worst.

    Attributes:
        metric: by what.
        scope: "scenarios" is about scenarios like these, "seeds" about these.
        scenarios: those that it is made of.
        standings: the order.
        comparisons: each pair once, with the p-value after Holm's correction; None where nothing
            tells.
    """

    metric: Metric
    scope: Scope
    scenarios: tuple[str, ...]
    standings: tuple[Standing, ...]
    comparisons: tuple[tuple[Comparison, float | None], ...] = field(repr=False)

    def told_apart(self, first: str, second: str) -> bool:
        """Do the two differ, as far as the sweep can tell?"""
        wanted = {first, second}
        return any(
            p is not None and p < 1 - LEVEL and {one.first, one.second} == wanted
            for one, p in self.comparisons
        )


def rank(
    cells: Sequence[Cell],
    scenarios: Sequence[str],
    controllers: Sequence[str],
    metric: Metric = COMMUNICATION,
    scope: Scope = "scenarios",
) -> Ranking:
    """Rank controllers by a metric on some scenarios.

    Controllers stand in the order of their mean paired differences to all others, so that one
    with fewer seeds is compared on the seeds that it has.
    """
    grid = Grid.of(cells, metric)
    names = [c for c in controllers if np.isfinite(grid.of_one(c, scenarios)).any()]
    found = [compare(grid, a, b, scenarios, scope) for a, b in itertools.combinations(names, 2)]
    adjusted = holm([float(one.difference.p) for one in found])
    sign = -1.0 if metric.better == "high" else 1.0
    ahead: dict[str, list[float]] = {name: [0.0] for name in names}
    better: dict[str, int] = dict.fromkeys(names, 0)
    worse: dict[str, int] = dict.fromkeys(names, 0)
    same: list[tuple[str, str]] = []
    for one, p in zip(found, adjusted, strict=True):
        difference = sign * float(one.difference.mean)
        if np.isfinite(difference):
            ahead[one.first].append(difference)
            ahead[one.second].append(-difference)
        if p is None or p >= 1 - LEVEL:
            same.append((one.first, one.second))
        else:
            winner, loser = (one.first, one.second) if difference < 0 else (one.second, one.first)
            better[loser] += 1
            worse[winner] += 1
    order = sorted(names, key=lambda name: sum(ahead[name]) / len(ahead[name]))
    letters = _letters(order, same)
    standings = []
    for name in order:
        mean = grid.mean(name, scenarios, scope)
        missing = sum(one.missing for one in found if name in (one.first, one.second))
        standings.append(
            Standing(
                name,
                1 + better[name],
                len(names) - worse[name],
                letters[name],
                metric.shown(mean),
                mean.values,
                missing,
            )
        )
    pairs = tuple(zip(found, adjusted, strict=True))
    return Ranking(metric, scope, tuple(scenarios), tuple(standings), pairs)


def holm(p_values: Sequence[float]) -> list[float | None]:
    """Holm's correction; None where there was no p-value, which is no test and counts as none."""
    from statsmodels.stats.multitest import multipletests

    known = [i for i, p in enumerate(p_values) if np.isfinite(p)]
    found: list[float | None] = [None] * len(p_values)
    if known:
        _, adjusted, _, _ = multipletests([p_values[i] for i in known], method="holm")
        for place, p in zip(known, adjusted, strict=True):
            found[place] = float(p)
    return found


def _letters(order: Sequence[str], same: Sequence[tuple[str, str]]) -> dict[str, str]:
    """A letter for each largest set of controllers in which no two are told apart."""
    import networkx

    graph: networkx.Graph[str] = networkx.Graph()
    graph.add_nodes_from(order)
    graph.add_edges_from(same)
    place = {name: i for i, name in enumerate(order)}
    groups = sorted(sorted(place[n] for n in group) for group in networkx.find_cliques(graph))
    found: dict[str, list[str]] = {name: [] for name in order}
    for number, group in enumerate(groups):
        for at in group:
            found[order[at]].append(_letter(number))
    return {name: " ".join(letters) for name, letters in found.items()}


def _letter(number: int) -> str:
    letters = string.ascii_lowercase
    more, at = divmod(number, len(letters))
    return letters[at] + (str(more + 1) if more else "")
