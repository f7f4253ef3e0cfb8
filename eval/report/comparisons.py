"""Sections that compare controllers: ranked, shifted, by scenario, beside their controls."""

from __future__ import annotations

import math

from ..robustness.metrics import (
    COMMUNICATION,
    EPOCH_SECONDS,
    HITS,
    ORACLE_REGRET,
    PASS_AT_1,
    REGRET,
)
from ..robustness.tables import id_split
from .anchors import Anchors, mean_item
from .document import Item, Picture, Section, Table
from .figures import by_axis, heat_map, id_beside_ood, standings
from .numbers import NONE, change, count, interval, number, shown
from .study import Study

_CONTROLS = {
    "rate": "random at its rate",
    "shuffled": "its answers, shuffled",
    "constant": "best constant prediction",
    "balanced": "its own, classes alike",
}


def leaderboard(study: Study, anchors: Anchors) -> Section:
    ranking, here = study.ranking, study.ranking_here
    if not study.decided:
        told = "There is nothing to decide in any scenario of this sweep: no ranking."
        return Section("Leaderboard", "leaderboard", [told])
    letters = {one.controller: one for one in here.standings}
    columns = (REGRET, ORACLE_REGRET, HITS, EPOCH_SECONDS, PASS_AT_1)
    bounds = [name for name in study.shown if name not in study.competitors]
    means = study.overall([*study.competitors, *bounds], (COMMUNICATION, *columns))
    rows = []
    for one in ranking.standings:
        name, own = one.controller, letters[one.controller]
        place = f"{one.best}" if one.best == one.worst else f"{one.best} to {one.worst}"
        rows.append(
            [
                Item(name, anchors.of(name), strong=one.best == 1), Item(study.families[name]),
                Item(place), Item(one.letters), Item(own.letters),
                Item(str(one.runs), anchors.of(name)), Item(interval(one.mean, percent=True)),
                *(mean_item(means.get((name, m.key)), m, one.runs) for m in columns),
                Item(str(one.missing or "")),
            ]
        )  # fmt: skip
    for name in bounds:
        mean = means.get((name, COMMUNICATION.key))
        runs = mean.values if mean else 0
        rows.append(
            [
                Item(name, anchors.of(name)), Item("bound"), Item(NONE), Item(""), Item(""),
                Item(str(runs), anchors.of(name)), Item(shown(mean, COMMUNICATION)),
                *(mean_item(means.get((name, m.key)), m, runs) for m in columns), Item(""),
            ]
        )  # fmt: skip
    headings = (
        "controller", "family", "place", "like these", "these", "runs",
        COMMUNICATION.title, *(m.title for m in columns), "pairs missing",
    )  # fmt: skip
    none = sorted(set(study.competitors) - set(letters))
    blocks: list[str | Table | Picture | None] = [
        f"By rows fetched on {count(len(study.decided), 'scenario')} with something to decide; "
        "communication is a share of no buffer. Controllers that share a letter cannot be told "
        "apart (paired differences, Holm's correction over all pairs): in scenarios like these "
        "(place and its letters), and in these very scenarios, where only seeds vary. A place "
        "such as 1 to 3 says that nothing puts it outside these places.",
        standings(
            [(one.controller, one.mean, one.letters) for one in ranking.standings],
            "communication, share of no buffer, with 95 % intervals over scenarios like these",
        ),
        Table(headings, rows, left=5),
    ]
    if none:
        blocks.append(f"Without a finished run there: {', '.join(none)}.")
    return Section("Leaderboard", "leaderboard", [b for b in blocks if b is not None])


def id_ood(study: Study, anchors: Anchors) -> Section:
    metric = study.shift_metric
    if not study.shifts:
        told = "Needs cells in distribution and out of it."
        return Section("In distribution and out of it", "id-ood", [told])
    shifts = [shift for shift in study.shifts if shift.controller in study.shown]
    axes = list(dict.fromkeys(axis for shift in shifts for axis in shift.axes))
    rows = []
    for shift in shifts:
        worse = shift.gap.known and (
            shift.gap.low > (1 if metric.ratio else 0)
            if metric.better == "low"
            else shift.gap.high < 0
        )
        rows.append(
            [
                Item(shift.controller, anchors.of(shift.controller)), Item(shift.family),
                Item(shift.worst),
                Item(shown(shift.inside, metric), note=f"n={shift.inside.values}"),
                Item(shown(shift.outside, metric), note=f"n={shift.outside.values}"),
                Item(change(shift.gap, metric), strong=worse),
                Item(shown(shift.worst_mean, metric), note=f"n={shift.worst_mean.values}"),
                *(
                    Item(change(shift.axes[a], metric), note=f"n={shift.axes[a].values}")
                    if a in shift.axes
                    else Item(NONE)
                    for a in axes
                ),
            ]
        )  # fmt: skip
    headings = (
        "controller", "family", "worst group", "ID", "OOD", "gap", "in the worst group",
        *(axis.removeprefix("ood_") for axis in axes),
    )  # fmt: skip
    blocks: list[str | Table | Picture | None] = [
        f"{metric.title}: ID is {id_split(study.cells)}, OOD all shifted splits; the gap is OOD "
        "beside ID, then for each axis alone. Set apart where its interval says that the "
        "controller is worse out of distribution. n counts runs.",
        id_beside_ood(shifts, study.buffered),
        by_axis(study.split_rows, study.buffered, metric),
        by_axis(study.split_rows, study.buffered, COMMUNICATION)
        if metric != COMMUNICATION
        else None,
        Table(headings, rows, left=3),
    ]
    return Section("In distribution and out of it", "id-ood", [b for b in blocks if b is not None])


def scenarios(study: Study, anchors: Anchors) -> Section:
    names = study.shown
    values, reference = study.beside_reference(names)
    scenarios = [fact.name for fact in study.facts]
    idle = [fact.name for fact in study.facts if not fact.decides]
    runs: dict[tuple[str, str], int] = {}
    for cell in study.cells:
        if cell.finished:
            key = cell.controller, cell.scenario
            runs[key] = runs.get(key, 0) + 1
    rows = [
        [
            Item(scenario + (" (nothing to decide)" if scenario in idle else "")),
            *(
                _ratio(values[i, j], runs.get((name, scenario), 0), anchors.of(name, scenario))
                for i, name in enumerate(names)
            ),
        ]
        for j, scenario in enumerate(scenarios)
    ]
    blocks = [
        f"Rows fetched beside {reference} of the same scenario and seed, means over seeds. Each "
        "number leads to its runs.",
        heat_map(names, scenarios, values, idle, reference) if names else None,
        Table(("scenario", *names), rows),
    ]
    return Section("Scenario by scenario", "scenarios", [b for b in blocks if b is not None])


def _ratio(value: float, runs: int, anchor: str) -> Item:
    if not math.isfinite(value):
        return Item("no run")
    return Item(
        number(math.exp(value) - 1, percent=True, sign=True), anchor, f"n={runs}",
        strong=value < 0,
    )  # fmt: skip


def controls(study: Study, anchors: Anchors) -> Section | None:
    if not study.controls:
        return None
    rows = []
    for row in study.controls:
        known = row.comparison.pairs > 0
        better = row.comparison.difference
        wins = better.known and (better.high < 0 if row.metric.better == "low" else better.low > 0)
        beside = row.metric.beside(better)
        rows.append(
            [
                Item(row.controller, anchors.of(row.controller)), Item(row.side.upper()),
                Item(_CONTROLS[row.control]), Item(row.metric.title),
                Item(shown(row.own, row.metric)),
                Item(shown(row.other, row.metric) if known else "not run"),
                Item(change(beside, row.metric) if known else NONE,
                     strong=wins and row.control != "balanced"),
                Item(str(row.comparison.pairs)), Item(str(row.comparison.missing or "")),
            ]
        )  # fmt: skip
    headings = (
        "controller", "", "beside", "metric", "own", "other", "own beside other", "pairs",
        "missing",
    )  # fmt: skip
    text = (
        "A learned controller or an agent has learned something where it beats chance at its own "
        "rate and latency, and where its answers are worth more when they are given than in "
        "another order. Pass@1 stands beside always predicting the most frequent effect, and "
        "beside itself with each class of effects counted alike. Set apart where the interval "
        "says that it is better."
    )
    return Section("Beside their controls", "controls", [text, Table(headings, rows, left=4)])


def claims(study: Study, anchors: Anchors) -> Section:
    rows = []
    for one in study.claims:
        found = one.finding
        first = anchors.of(found.controllers[0]) if found.controllers else ""
        rows.append(
            [
                Item(one.claim), Item(one.test), Item(found.result),
                Item(found.verdict, strong=found.verdict == "supported"),
                Item(str(found.runs), first) if found.runs else Item(NONE),
            ]
        )  # fmt: skip
    text = (
        "Computed from the cells of this sweep. Not supported means that the interval of the test "
        "does not lie on the claimed side: the claim may be wrong here, or the sweep too small."
    )
    headings = ("claim", "our test", "result", "verdict", "runs or pairs")
    return Section("The paper's claims", "claims", [text, Table(headings, rows, left=4)])
