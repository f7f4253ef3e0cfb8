"""Sections that list: controllers by split, failed cells, all cells with their runs."""

from __future__ import annotations

from pathlib import Path

from ..cells import Cell
from ..robustness.metrics import (
    ACCURACY,
    COMMUNICATION,
    EPOCH_SECONDS,
    HITS,
    IMBALANCE,
    INTERVAL,
    LATENCY,
    ORACLE_REGRET,
    OUTSIDE,
    PASS_AT_1,
    PASS_BALANCED,
    PASS_CONSTANT,
    REGRET,
    REPLACE_SHARE,
    TEST_METRIC,
    VALID,
)
from ..robustness.tables import SplitRow
from .anchors import Anchors, mean_item
from .document import Item, Picture, Section, Table
from .drift import run_dir
from .numbers import NONE, count, number
from .study import Study

_SPLIT_COLUMNS = (
    (COMMUNICATION, REGRET, ORACLE_REGRET, HITS, EPOCH_SECONDS, IMBALANCE),
    (PASS_AT_1, PASS_CONSTANT, PASS_BALANCED, ACCURACY, TEST_METRIC, VALID, REPLACE_SHARE,
     OUTSIDE, LATENCY, INTERVAL),
)  # fmt: skip
_CELL_COLUMNS = (COMMUNICATION, REGRET, ORACLE_REGRET, HITS, EPOCH_SECONDS, PASS_AT_1)


def splits_section(study: Study, anchors: Anchors) -> Section:
    blocks: list[str | Table | Picture] = [
        "Means over scenarios, each counted alike (geometric for ratios), with 95 % intervals. "
        "n where it differs from the runs. Constant schedules that were run for headroom stand "
        "among the cells alone."
    ]
    for columns in _SPLIT_COLUMNS:
        used = [m for m in columns if any(m.key in row.means for row in study.split_rows)]
        rows = [
            [
                Item(row.controller, anchors.of(row.controller)), Item(row.split),
                *(mean_item(row.means.get(m.key), m, row.runs) for m in used),
                Item(_counts(row), anchors.of(row.controller)),
            ]
            for row in study.split_rows
            if row.failed
            or (row.family != "constant" and any(m.key in row.means for m in used))
        ]  # fmt: skip
        if used:
            headings = ("controller", "split", *(m.title for m in used), "runs / scenarios")
            blocks.append(Table(headings, rows, left=2))
    return Section("Controllers by split", "splits", blocks)


def _counts(row: SplitRow) -> str:
    failed = f", {row.failed} failed" if row.failed else ""
    return f"{row.runs} / {row.scenarios}{failed}"


def failures(study: Study, anchors: Anchors) -> Section | None:
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


def appendix(study: Study, anchors: Anchors, home: Path) -> list[Section]:
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
