"""The report of a study: which sections it has, and what they say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..cells import Cell
from ..robustness.intervals import FEW, LEVEL, RESAMPLES, Estimate
from ..robustness.metrics import (
    ACCURACY,
    COMMUNICATION,
    EPOCH_SECONDS,
    HITS,
    IMBALANCE,
    INTERVAL,
    LATENCY,
    MEMORY,
    ORACLE_REGRET,
    OUTSIDE,
    PASS_AT_1,
    PASS_BALANCED,
    PASS_CONSTANT,
    REGRET,
    REPLACE_SHARE,
    TEST_METRIC,
    VALID,
    Metric,
)
from ..robustness.tables import WORTH_DECIDING, SplitRow, id_split, splits
from .document import Document, Item, Picture, Section, Table
from .drift import decided, drifting, run_dir
from .figures import (
    by_axis,
    decisions,
    heat_map,
    id_beside_ood,
    quality_against_cost,
    standings,
)
from .numbers import NONE, change, count, interval, number, shown
from .study import Study

_SPLIT_COLUMNS = (
    (COMMUNICATION, REGRET, ORACLE_REGRET, HITS, EPOCH_SECONDS, IMBALANCE),
    (PASS_AT_1, PASS_CONSTANT, PASS_BALANCED, ACCURACY, TEST_METRIC, VALID, REPLACE_SHARE,
     OUTSIDE, LATENCY, INTERVAL),
)  # fmt: skip
_CELL_COLUMNS = (COMMUNICATION, REGRET, ORACLE_REGRET, HITS, EPOCH_SECONDS, PASS_AT_1)
_DRIFTS_SHOWN = 3
_ROWS_SHOWN = 9
_CONTROLS = {
    "rate": "random at its rate",
    "shuffled": "its answers, shuffled",
    "constant": "best constant prediction",
    "balanced": "its own, classes alike",
}


def build(study: Study, home: Path) -> Document:
    """The report; what has no cells to speak of says so, or is left out.

    Args:
        home: data directory, where runs lie whose decisions are drawn.
    """
    anchors = _Anchors(study)
    sections = [
        _overview(study),
        _headroom(study),
        _leaderboard(study, anchors),
        _id_ood(study, anchors),
        _scenarios(study, anchors),
        _drift(study, home),
        _cost(study, anchors),
        _controls(study, anchors),
        _claims(study, anchors),
        _splits(study, anchors),
        _failures(study, anchors),
        _methods(study),
        *_appendix(study, anchors, home),
    ]
    return Document(
        f"Rudder: {study.name}", tuple(section for section in sections if section is not None)
    )


class _Anchors:
    """Where in the appendix the cells of a controller, or of it in a scenario, stand."""

    def __init__(self, study: Study) -> None:
        self._controllers = {name: i for i, name in enumerate(study.families)}
        self._scenarios = {fact.name: i for i, fact in enumerate(study.facts)}

    def of(self, controller: str, scenario: str | None = None) -> str:
        """An anchor, or "" for what has no cells."""
        if controller not in self._controllers:
            return ""
        found = f"cells-{self._controllers[controller]}"
        return found if scenario is None else f"{found}-{self._scenarios[scenario]}"


def _overview(study: Study) -> Section:
    cells = study.cells
    failed = len(study.failures)
    facts: list[tuple[str, str]] = [
        (key, _told(value)) for key, value in study.head.items() if _told(value)
    ]
    facts += [
        ("engine", ", ".join(study.engines)),
        ("controllers", str(len(study.families))),
        ("scenarios", f"{len(study.facts)} in {', '.join(splits(cells))}"),
        ("seeds", ", ".join(str(seed) for seed in study.seeds)),
        ("cells", f"{len(cells) - failed} finished, {failed} failed"),
    ]
    rows = [[Item(key), Item(value)] for key, value in facts]
    blocks: list[str | Table | Picture] = [Table(("sweep", study.name), rows, left=2)]
    if failed:
        blocks.append(
            f"{count(failed, 'cell')} failed: see the list. Where a number rests on fewer runs "
            "than its neighbours, its count stands beside it."
        )
    return Section("Overview", "overview", blocks)


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_told(v)}" for k, v in value.items() if not isinstance(v, Mapping))
    if isinstance(value, list | tuple):
        return "; ".join(_told(item) for item in value)
    return "" if value is None else str(value)


def _headroom(study: Study) -> Section:
    idle = [fact.name for fact in study.facts if not fact.decides]
    unknown = [fact.name for fact in study.facts if not fact.known]
    blocks: list[str | Table | Picture] = [
        "Headroom is what perfect timing saves above the best constant schedule: (best constant "
        "schedule - timing-oracle) / timing-oracle, in rows fetched. No controller can be worth "
        f"more. Scenarios below {100 * WORTH_DECIDING:g} % enter no ranking."
    ]
    rows = []
    for fact in study.facts:
        says = "decides" if fact.decides else "nothing to decide here"
        rows.append(
            [
                Item(fact.name, strong=fact.decides), Item(fact.split),
                Item(says if fact.known else "headroom not known"),
                Item(interval(fact.headroom, percent=True), note=f"n={fact.seeds}"),
                Item(number(fact.best_constant.mean)),
                Item(str(fact.runs - fact.failed), "scenarios"),
                Item(str(fact.failed) if fact.failed else ""),
            ]
        )  # fmt: skip
    headings = ("scenario", "split", "", "headroom", "best constant, rows", "runs", "failed")
    blocks.append(Table(headings, rows, left=3))
    if idle:
        blocks.append(f"Nothing to decide in: {', '.join(idle)}.")
    if unknown:
        blocks.append(
            "Where headroom is not known (no oracle was run), scenarios enter rankings: "
            f"{', '.join(unknown)}."
        )
    return Section("What there is to decide", "headroom", blocks)


def _leaderboard(study: Study, anchors: _Anchors) -> Section:
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
                *(_mean(means.get((name, m.key)), m, one.runs) for m in columns),
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
                *(_mean(means.get((name, m.key)), m, runs) for m in columns), Item(""),
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


def _mean(found: Estimate | None, metric: Metric, runs: int) -> Item:
    if found is None:
        return Item(NONE)
    return Item(shown(found, metric), note="" if found.values == runs else f"n={found.values}")


def _id_ood(study: Study, anchors: _Anchors) -> Section:
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


def _scenarios(study: Study, anchors: _Anchors) -> Section:
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


def _drift(study: Study, home: Path) -> Section | None:
    found = drifting(study.cells, home)
    if not found:
        return None
    blocks: list[str | Table | Picture] = [
        "Bars: share of trainers that replace at that minibatch. Line: %-Hits. Dashed: a new "
        "epoch. One seed each; the runs are told below each figure."
    ]
    order = ("llm", "classifier", "oracle", "heuristic", "baseline")
    for scenario in found[:_DRIFTS_SHOWN]:
        cells = [c for c in study.cells if c.scenario == scenario and c.finished]
        cells = [c for c in cells if c.controller in study.shown]
        if not cells:
            continue
        seed = min(cell.seed for cell in cells)
        cells = sorted(
            (c for c in cells if c.seed == seed),
            key=lambda c: order.index(c.family) if c.family in order else len(order),
        )
        runs = [run for cell in cells if (run := decided(cell, home)) is not None]
        if not runs:
            blocks.append(f"{scenario}: no decisions were kept, or its runs are gone.")
            continue
        drawn = runs[:_ROWS_SHOWN]
        blocks.append(decisions(drawn, f"{scenario}, seed {seed}", f"decisions-{len(blocks)}"))
        blocks.append(
            "Runs: " + ", ".join(f"{r.cell.controller} {r.cell.run_id}" for r in drawn) + "."
        )
    if len(found) > _DRIFTS_SHOWN:
        blocks.append(f"Not drawn: {', '.join(found[_DRIFTS_SHOWN:])}.")
    return Section("Decisions under drift", "drift", blocks)


def _cost(study: Study, anchors: _Anchors) -> Section:
    quality = study.shift_metric
    panels = [
        (LATENCY, quality, 1), (LATENCY, PASS_AT_1, 1), (MEMORY, quality, 2),
        (MEMORY, PASS_AT_1, 2),
    ]  # fmt: skip
    columns = (LATENCY, MEMORY, quality, PASS_AT_1)
    means = study.overall(study.shown, (*columns, PASS_CONSTANT))
    rows = [
        [
            Item(name, anchors.of(name)), Item(study.families[name]),
            *(
                Item(shown(mean, m), note=f"n={mean.values}")
                if (mean := means.get((name, m.key))) is not None
                else Item(NONE)
                for m in columns
            ),
        ]
        for name in study.shown
    ]  # fmt: skip
    blocks = [
        "Seconds to an answer are the median of a run; on the replay engine they are those that "
        "the run was told to take. Only scenarios with something to decide.",
        quality_against_cost(study.shown, panels, means),
        Table(("controller", "family", *(m.title for m in columns)), rows, left=2),
    ]
    return Section("Quality against cost", "cost", [b for b in blocks if b is not None])


def _controls(study: Study, anchors: _Anchors) -> Section | None:
    if not study.controls:
        return None
    rows = []
    for row in study.controls:
        known = row.comparison.pairs > 0
        better = row.comparison.difference
        wins = better.known and (better.high < 0 if row.metric.better == "low" else better.low > 0)
        beside = row.metric.shown(better)
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


def _claims(study: Study, anchors: _Anchors) -> Section:
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


def _splits(study: Study, anchors: _Anchors) -> Section:
    blocks: list[str | Table | Picture] = [
        "Means over scenarios, each counted alike (geometric for ratios), with 95 % intervals. "
        "n where it differs from the runs."
    ]
    for columns in _SPLIT_COLUMNS:
        used = [m for m in columns if any(m.key in row.means for row in study.split_rows)]
        rows = [
            [
                Item(row.controller, anchors.of(row.controller)), Item(row.split),
                *(_mean(row.means.get(m.key), m, row.runs) for m in used),
                Item(_counts(row), anchors.of(row.controller)),
            ]
            for row in study.split_rows
            if row.failed or any(m.key in row.means for m in used)
        ]  # fmt: skip
        if used:
            headings = ("controller", "split", *(m.title for m in used), "runs / scenarios")
            blocks.append(Table(headings, rows, left=2))
    return Section("Controllers by split", "splits", blocks)


def _counts(row: SplitRow) -> str:
    failed = f", {row.failed} failed" if row.failed else ""
    return f"{row.runs} / {row.scenarios}{failed}"


def _failures(study: Study, anchors: _Anchors) -> Section | None:
    if not study.failures:
        return None
    rows = [
        [
            Item(cell.controller), Item(cell.scenario, anchors.of(cell.controller, cell.scenario)),
            Item(cell.error or "no message"), Item(str(cell.seed)), Item(cell.run_id or NONE),
        ]
        for cell in study.failures
    ]  # fmt: skip
    headings = ("controller", "scenario", "error", "seed", "run")
    return Section("Failed cells", "failed", [Table(headings, rows, left=3)])


def _methods(study: Study) -> Section:
    return Section(
        "How it was computed",
        "methods",
        [
            f"Intervals are at {100 * LEVEL:g} %. Within a scenario: Student's t below {FEW} "
            "seeds, else a BCa bootstrap. Over scenarios: a bootstrap that draws scenarios, then "
            f"seeds in them ({RESAMPLES} draws, always the same), with Student's t for its "
            f"quantiles below {FEW} scenarios. With one scenario, seeds alone vary.",
            "Controllers are compared by differences on the same scenario and seed; pairs with a "
            "missing side are counted, never filled in. Ratios (communication, regrets, seconds, "
            "imbalance) are compared and averaged as logarithms.",
            "ID beside OOD is a difference of two means of different scenarios, with Welch's "
            "degrees of freedom. The worst group is the split with the worst mean; having been "
            "chosen for that, it looks worse than it is.",
            "Regret to MIN is rows beside the offline optimum from the same fill, regret to "
            "timing-oracle beside perfect timing under the same policy. Without a buffer there "
            "is neither.",
        ],
    )


def _appendix(study: Study, anchors: _Anchors, home: Path) -> list[Section]:
    found = []
    for name in study.families:
        cells = [cell for cell in study.cells if cell.controller == name]
        rows, marks, last = [], [], ""
        for cell in sorted(cells, key=lambda c: (_place(study, c), c.seed)):
            marks.append(anchors.of(name, cell.scenario) if cell.scenario != last else "")
            last = cell.scenario
            rows.append(_cell_row(study, cell, home))
        headings = (
            "scenario", "split", "run", "cell", "MLflow run", "seed",
            *(m.title for m in _CELL_COLUMNS), "wall, s",
        )  # fmt: skip
        told = f"{name} ({study.families[name]}): {count(len(cells), 'cell')}"
        table = Table(headings, rows, left=5, anchors=marks)
        found.append(Section(f"Cells of {told}", anchors.of(name), [table], folded=True))
    return found


def _place(study: Study, cell: Cell) -> int:
    return next(i for i, fact in enumerate(study.facts) if fact.name == cell.scenario)


def _cell_row(study: Study, cell: Cell, home: Path) -> list[Item]:
    folder = run_dir(cell, home)
    link = folder.resolve().as_uri() if folder is not None else ""
    return [
        Item(cell.scenario), Item(cell.split),
        Item(cell.run_id or NONE, link=link, note="" if cell.finished else "failed"),
        Item(cell.cell), Item(cell.mlflow_run_id or NONE), Item(str(cell.seed)),
        *(
            Item(number(value, percent=metric.share))
            for metric, value in zip(
                _CELL_COLUMNS, study.values(cell, _CELL_COLUMNS), strict=True
            )
        ),
        Item(NONE if cell.seconds is None else number(cell.seconds)),
    ]  # fmt: skip
