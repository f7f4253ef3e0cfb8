"""Cells as an array: controllers × scenarios × seeds, for one metric."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..cells import Cell
from .intervals import Estimate, Floats, Scope, estimate
from .metrics import Metric, measure


@dataclass(frozen=True)
class Grid:
    """Values on the metric's scale of comparison; NaN = failed, never run, or meaningless.

    Attributes:
        metric: what they are.
        controllers, scenarios, seeds: what the axes stand for, in order of first appearance.
        values: float64 ``[controllers, scenarios, seeds]``.
    """

    metric: Metric
    controllers: tuple[str, ...]
    scenarios: tuple[str, ...]
    seeds: tuple[int, ...]
    values: Floats

    @classmethod
    def of(cls, cells: Sequence[Cell], metric: Metric) -> Grid:
        controllers = tuple(dict.fromkeys(cell.controller for cell in cells))
        scenarios = tuple(dict.fromkeys(cell.scenario for cell in cells))
        seeds = tuple(dict.fromkeys(cell.seed for cell in cells))
        values = np.full((len(controllers), len(scenarios), len(seeds)), np.nan)
        places = [{name: i for i, name in enumerate(axis)} for axis in (controllers, scenarios)]
        at = {seed: i for i, seed in enumerate(seeds)}
        for cell in cells:
            place = places[0][cell.controller], places[1][cell.scenario], at[cell.seed]
            values[place] = metric.scaled(measure(cell, metric))
        return cls(metric, controllers, scenarios, seeds, values)

    def of_one(self, controller: str, scenarios: Iterable[str] | None = None) -> Floats:
        """``[scenarios, seeds]`` of a controller; nothing but NaN if it is not there."""
        return self.of_several([controller], scenarios)

    def of_several(
        self, controllers: Sequence[str], scenarios: Iterable[str] | None = None
    ) -> Floats:
        """``[scenarios, seeds]``: the mean over controllers, where all of them have a value.

        Those that have none anywhere do not count.
        """
        chosen = None if scenarios is None else set(scenarios)
        rows = [i for i, name in enumerate(self.scenarios) if chosen is None or name in chosen]
        places = [self.controllers.index(c) for c in controllers if c in self.controllers]
        places = [place for place in places if np.isfinite(self.values[place]).any()]
        if not places:
            return np.full((len(rows), len(self.seeds)), np.nan)
        mean: Floats = self.values[places][:, rows].mean(0)
        return mean

    def mean(
        self, controller: str, scenarios: Iterable[str] | None = None, scope: Scope = "scenarios"
    ) -> Estimate:
        """A controller's mean over scenarios, on the metric's scale of comparison."""
        return estimate(self.of_one(controller, scenarios), scope)


@dataclass(frozen=True)
class Comparison:
    """One controller beside another on the same scenarios and seeds.

    Attributes:
        first, second: the controllers.
        difference: ``first - second`` on the metric's scale: a log ratio for ratios.
        pairs: scenarios and seeds in which both have a value.
        missing: in which only one of them has.
    """

    first: str
    second: str
    difference: Estimate
    pairs: int
    missing: int


def compare(
    grid: Grid,
    first: str,
    second: str,
    scenarios: Iterable[str] | None = None,
    scope: Scope = "scenarios",
) -> Comparison:
    """Two controllers by paired differences."""
    kept = None if scenarios is None else list(scenarios)
    return compare_values(grid.of_one(first, kept), grid.of_one(second, kept), first, second, scope)


def compare_values(
    first: Floats, second: Floats, one: str, other: str, scope: Scope = "scenarios"
) -> Comparison:
    """Paired differences of ``[scenarios, seeds]`` with the same axes."""
    missing = int((np.isfinite(first) != np.isfinite(second)).sum())
    found = estimate(first - second, scope)
    return Comparison(one, other, found, found.values, missing)
