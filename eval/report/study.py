"""Everything a report says about a sweep, computed once; Markdown, HTML and JSON tell the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from rudder.plain import plain

from ..cells import Cell
from ..robustness.grid import Grid
from ..robustness.intervals import Estimate, Floats
from ..robustness.metrics import COMMUNICATION, ORACLE_REGRET, Metric, measure
from ..robustness.ranking import Ranking, rank
from ..robustness.tables import (
    ControlRow,
    ScenarioFacts,
    Shift,
    SplitRow,
    by_split,
    competitors,
    controls,
    failures,
    families,
    scenario_facts,
    shifts,
)
from .claims import Claim, claims


@dataclass(frozen=True)
class Study:
    """A sweep and what it comes to.

    Attributes:
        name: of the sweep.
        cells: its cells.
        head: what else is known of it (``sweep.json``), by name.
        missing: how many cells were asked for that have not been run yet, controls aside.
    """

    name: str
    cells: Sequence[Cell]
    head: Mapping[str, Any] = field(default_factory=dict)
    missing: int = 0

    @cached_property
    def families(self) -> dict[str, str]:
        return families(self.cells)

    @cached_property
    def facts(self) -> list[ScenarioFacts]:
        return scenario_facts(self.cells)

    @cached_property
    def decided(self) -> list[str]:
        """Scenarios that enter rankings."""
        return [fact.name for fact in self.facts if fact.decides]

    @cached_property
    def competitors(self) -> list[str]:
        return competitors(self.cells)

    @cached_property
    def shown(self) -> list[str]:
        """Those in figures: competitors that finished anywhere, and bounds."""
        done = {cell.controller for cell in self.cells if cell.finished}
        bounds = [name for name, family in self.families.items() if family == "oracle"]
        return [name for name in [*self.competitors, *bounds] if name in done]

    @cached_property
    def buffered(self) -> list[str]:
        """Of these, the ones that have a buffer."""
        grid = Grid.of(self.cells, COMMUNICATION)
        return [name for name in self.shown if np.nanmin(grid.of_one(name)) < 0]

    @cached_property
    def ranking(self) -> Ranking:
        """Over scenarios like these."""
        return rank(self.cells, self.decided, self.competitors)

    @cached_property
    def ranking_here(self) -> Ranking:
        """On these scenarios alone."""
        return rank(self.cells, self.decided, self.competitors, scope="seeds")

    @cached_property
    def split_rows(self) -> list[SplitRow]:
        return by_split(self.cells)

    @cached_property
    def shift_metric(self) -> Metric:
        """What ID and OOD are compared by: communication where no controller was held against the
        oracle, as in real runs, beside which constant schedules alone were replayed."""
        own = [cell for cell in self.cells if cell.controller in self.competitors]
        grid = Grid.of(own, ORACLE_REGRET)
        return ORACLE_REGRET if np.isfinite(grid.values).any() else COMMUNICATION

    @cached_property
    def shifts(self) -> list[Shift]:
        return shifts(self.cells, self.shift_metric)

    @cached_property
    def controls(self) -> list[ControlRow]:
        return controls(self.cells)

    @cached_property
    def claims(self) -> list[Claim]:
        return claims(self.cells)

    @cached_property
    def failures(self) -> list[Cell]:
        return failures(self.cells)

    @cached_property
    def seeds(self) -> list[int]:
        return sorted({cell.seed for cell in self.cells})

    @cached_property
    def engines(self) -> list[str]:
        return list(dict.fromkeys(cell.engine for cell in self.cells))

    def overall(self, controllers: Sequence[str], metrics: Sequence[Metric]) -> (
        dict[tuple[str, str], Estimate]
    ):  # fmt: skip
        """Means over all scenarios with something to decide, by controller and key."""
        found = {}
        for metric in metrics:
            grid = Grid.of(self.cells, metric)
            for name in controllers:
                mean = grid.mean(name, self.decided)
                if mean.values:
                    found[name, metric.key] = metric.shown(mean)
        return found

    def beside_reference(self, controllers: Sequence[str]) -> tuple[Floats, str]:
        """Log ratios of rows, ``[controllers, scenarios]``, and what they are ratios to.

        That is the best constant schedule under the same seed; the best of the competitors'
        means where headroom was not asked for.
        """
        constants = {
            (cell.scenario, cell.seed): cell.value("best_constant")
            for cell in self.cells
            if cell.value("best_constant")
        }
        scenarios = [fact.name for fact in self.facts]
        if not all(any((s, seed) in constants for seed in self.seeds) for s in scenarios):
            grid = Grid.of(self.cells, COMMUNICATION)
            means = np.array([[_mean(row) for row in grid.of_one(c)] for c in controllers])
            best = [_least(column) for column in means.T]
            return means - best, "the best controller here"
        found: dict[tuple[str, str], list[float]] = {}
        for cell in self.cells:
            rows, constant = cell.value("fetched"), constants.get((cell.scenario, cell.seed))
            if cell.finished and rows and constant:
                of = found.setdefault((cell.controller, cell.scenario), [])
                of.append(float(np.log(rows / constant)))
        ratios = [[_mean(np.array(found.get((c, s), []))) for s in scenarios] for c in controllers]
        return np.array(ratios), "the best constant schedule"

    def to_dict(self) -> dict[str, Any]:
        """For ``--json`` and for whoever tracks it; plain values."""
        told: dict[str, Any] = plain(
            {
                "sweep": self.name,
                "cells": len(self.cells),
                "missing": self.missing,
                "failed": [
                    {"controller": c.controller, "scenario": c.scenario, "seed": c.seed,
                     "run_id": c.run_id, "error": c.error}
                    for c in self.failures
                ],
                "scenarios": [{**plain(f), "decides": f.decides} for f in self.facts],
                "ranking": [plain(one) for one in self.ranking.standings],
                "ranking_here": [plain(one) for one in self.ranking_here.standings],
                "splits": [plain(row) for row in self.split_rows],
                "id_ood": [plain(one) for one in self.shifts],
                "controls": [plain(one) for one in self.controls],
                "claims": [plain(one) for one in self.claims],
            }
        )  # fmt: skip
        return told

    def values(self, cell: Cell, metrics: Sequence[Metric]) -> list[float]:
        """Some numbers of one cell; NaN where it has none."""
        return [measure(cell, metric) for metric in metrics]


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def _least(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.min()) if known.size else float("nan")
