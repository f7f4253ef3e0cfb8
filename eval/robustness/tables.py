"""Tables of a sweep: what there is to decide, controllers by split, ID beside OOD, controls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..cells import CONTROLS, WORTH_DECIDING, Cell, control_name, controlled
from .grid import Comparison, Grid, compare, compare_values
from .intervals import Estimate, apart, estimate
from .metrics import (
    COMMUNICATION,
    METRICS,
    ORACLE_REGRET,
    PASS_AT_1,
    PASS_BALANCED,
    PASS_CONSTANT,
    Metric,
)

COMPETING = ("baseline", "heuristic", "classifier", "llm")
"""Families that are ranked; the others are bounds and controls."""
LEARNED = ("classifier", "llm")
"""Families that stand beside controls."""


@dataclass(frozen=True)
class ScenarioFacts:
    """One scenario of a sweep.

    Attributes:
        name, split, axis: as in the suite.
        headroom: (best constant schedule - oracle) / oracle, over seeds; NaN where not known.
        best_constant: rows of the best constant schedule, over seeds.
        schedule: that which is best under most seeds, or "".
        seeds: in which headroom is known.
        runs, failed: cells, and those of them that failed.
    """

    name: str
    split: str
    axis: str
    headroom: Estimate
    best_constant: Estimate
    schedule: str
    seeds: int
    runs: int
    failed: int

    @property
    def known(self) -> bool:
        """Is there a headroom at all? On the real engine there is no oracle."""
        return self.seeds > 0

    @property
    def decides(self) -> bool:
        """Does it enter rankings? It does where headroom is unknown."""
        return not self.known or self.headroom.mean >= WORTH_DECIDING - 1e-9


def scenario_facts(cells: Sequence[Cell]) -> list[ScenarioFacts]:
    """What there is to decide in each scenario, in the order of the sweep.

    All cells of a scenario and seed tell the same headroom, but those of a controller that brings
    a policy of its own: what most of them tell is the scenario's.
    """
    found = []
    for name in dict.fromkeys(cell.scenario for cell in cells):
        own = [cell for cell in cells if cell.scenario == name]
        headroom, constant = (_by_seed(own, key) for key in ("headroom", "best_constant"))
        found.append(
            ScenarioFacts(
                name,
                own[0].split,
                own[0].axis,
                estimate(np.array([headroom])),
                estimate(np.array([constant])),
                _most_told(own, "best_constant_schedule"),
                int(np.isfinite(headroom).sum()),
                len(own),
                sum(not cell.finished for cell in own),
            )
        )
    return found


def _most_told(cells: Sequence[Cell], key: str) -> str:
    told = Counter(str(cell.summary[key]) for cell in cells if cell.summary.get(key))
    return told.most_common(1)[0][0] if told else ""


def _by_seed(cells: Sequence[Cell], key: str) -> list[float]:
    values = []
    for seed in dict.fromkeys(cell.seed for cell in cells):
        told = [cell.value(key) for cell in cells if cell.seed == seed]
        common = Counter(value for value in told if value is not None).most_common(1)
        values.append(common[0][0] if common else math.nan)
    return values


def families(cells: Sequence[Cell]) -> dict[str, str]:
    """The family of each controller, in order of first appearance."""
    return {cell.controller: cell.family for cell in cells}


@dataclass(frozen=True)
class SplitRow:
    """One controller in one split.

    Attributes:
        controller, family, split: which.
        scenarios: in which it has a finished run.
        runs, failed: finished and failed cells.
        means: by key of the metric, over scenarios, as readers know it; only those with a value.
    """

    controller: str
    family: str
    split: str
    scenarios: int
    runs: int
    failed: int
    means: Mapping[str, Estimate]


def by_split(cells: Sequence[Cell], metrics: Sequence[Metric] = METRICS) -> list[SplitRow]:
    """Every controller in every split, controls and bounds too."""
    rows = []
    for split in splits(cells):
        inside = [cell for cell in cells if cell.split == split]
        grids = [Grid.of(inside, metric) for metric in metrics]
        for controller, family in families(inside).items():
            own = [cell for cell in inside if cell.controller == controller]
            means = {grid.metric.key: grid.mean(controller) for grid in grids}
            shown = {
                metric.key: metric.shown(means[metric.key])
                for metric in metrics
                if means[metric.key].values
            }
            done = [cell for cell in own if cell.finished]
            rows.append(
                SplitRow(
                    controller,
                    family,
                    split,
                    len({cell.scenario for cell in done}),
                    len(done),
                    len(own) - len(done),
                    shown,
                )
            )
    return rows


def splits(cells: Sequence[Cell]) -> list[str]:
    """Splits that occur, in distribution first."""
    found = list(dict.fromkeys(cell.split for cell in cells))
    return sorted(found, key=lambda split: not split.startswith("id_"))


def id_split(cells: Sequence[Cell]) -> str | None:
    """What OOD is held against: ``id_val`` where there is one, since nothing was fitted to it."""
    found = splits(cells)
    return next((split for split in ("id_val", "id_train") if split in found), None)


@dataclass(frozen=True)
class Shift:
    """What becomes of a controller out of distribution, by one metric.

    Attributes:
        controller, family: which.
        metric: by what.
        inside, outside: its means in distribution and in all OOD splits, as readers know them.
        gap: outside beside inside: a ratio of means for ratios, else a difference.
        axes: the gap of each OOD split alone.
        worst: the split in which it is worst, in distribution or not.
        worst_mean: its mean there.
    """

    controller: str
    family: str
    metric: Metric
    inside: Estimate
    outside: Estimate
    gap: Estimate
    axes: Mapping[str, Estimate]
    worst: str
    worst_mean: Estimate


def shifts(
    cells: Sequence[Cell],
    metric: Metric = ORACLE_REGRET,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> list[Shift]:
    """ID beside OOD for every controller that has a value in both.

    Args:
        groups: several controllers taken as one, by its name: their mean where all have a value.
            Default: each by itself.
    """
    grid = Grid.of(cells, metric)
    kinds = families(cells)
    where = {cell.scenario: cell.split for cell in cells}
    names: dict[str, list[str]] = {}
    for scenario in grid.scenarios:
        names.setdefault(where[scenario], []).append(scenario)
    anchor = id_split(cells)
    if anchor is None:
        return []
    found = []
    for name, members in (groups or {name: [name] for name in grid.controllers}).items():
        means = {split: estimate(grid.of_several(members, own)) for split, own in names.items()}
        ood = [s for split, own in names.items() if split.startswith("ood_") for s in own]
        inside, outside = means[anchor], estimate(grid.of_several(members, ood))
        if not inside.values or not outside.values:
            continue
        known = {split: mean for split, mean in means.items() if mean.values}
        choose: Callable[..., str] = min if metric.better == "high" else max
        worst = choose(known, key=lambda split, known=known: known[split].mean)
        found.append(
            Shift(
                name,
                kinds[members[0]],
                metric,
                metric.shown(inside),
                metric.shown(outside),
                metric.beside(apart(inside, outside)),
                {
                    split: metric.beside(apart(inside, mean))
                    for split, mean in known.items()
                    if split.startswith("ood_")
                },
                worst,
                metric.shown(known[worst]),
            )
        )
    return found


@dataclass(frozen=True)
class ControlRow:
    """A learned controller or an agent beside what it must beat to have learned anything.

    Attributes:
        controller, family: which.
        side: ``id`` or ``ood``.
        control: ``rate`` (random at its rate and latency), ``shuffled`` (its own answers in
            another order), ``constant`` (the best constant prediction) or ``balanced`` (Pass@1 with
            each class of effects counted alike: shown, no control).
        metric: by what.
        own, other: means, as readers know them.
        comparison: own beside other, paired; a ratio of means for ratios, else a difference.
    """

    controller: str
    family: str
    side: str
    control: str
    metric: Metric
    own: Estimate
    other: Estimate
    comparison: Comparison


def controls(cells: Sequence[Cell]) -> list[ControlRow]:
    """Each learned controller and agent beside its controls; missing ones are rows without runs."""
    rows = []
    for side in ("id", "ood"):
        inside = [cell for cell in cells if cell.split.startswith(side)]
        communication = Grid.of(inside, COMMUNICATION)
        predictions = [Grid.of(inside, m) for m in (PASS_AT_1, PASS_CONSTANT, PASS_BALANCED)]
        for controller, family in families(inside).items():
            if family not in LEARNED:
                continue
            for kind in CONTROLS:
                control = control_name(kind, controller)
                rows.append(
                    ControlRow(
                        controller,
                        family,
                        side,
                        kind,
                        COMMUNICATION,
                        communication.mean(controller).exp(),
                        communication.mean(control).exp(),
                        compare(communication, controller, control),
                    )
                )
            own, *others = (grid.of_one(controller) for grid in predictions)
            for kind, other in zip(("constant", "balanced"), others, strict=True):
                if np.isfinite(own).any():
                    rows.append(
                        ControlRow(
                            controller,
                            family,
                            side,
                            kind,
                            PASS_AT_1,
                            PASS_AT_1.shown(estimate(own)),
                            PASS_AT_1.shown(estimate(other)),
                            compare_values(own, other, controller, kind),
                        )
                    )
    return rows


def competitors(cells: Sequence[Cell]) -> list[str]:
    """The controllers that are ranked."""
    return [
        name
        for name, family in families(cells).items()
        if family in COMPETING and controlled(name) is None
    ]


def failures(cells: Sequence[Cell]) -> list[Cell]:
    """Cells that failed."""
    return [cell for cell in cells if not cell.finished]
