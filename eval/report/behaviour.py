"""Sections on how controllers behave: decisions under drift, and what quality costs."""

from __future__ import annotations

from pathlib import Path

from ..robustness.metrics import (
    ANSWER,
    MEMORY,
    PASS_AT_1,
    PASS_CONSTANT,
)
from .anchors import Anchors
from .document import Item, Picture, Section, Table
from .drift import decided, drifting
from .figures import decisions, quality_against_cost
from .numbers import NONE, shown
from .study import Study

_DRIFTS_SHOWN = 3
_ROWS_SHOWN = 9


def drift(study: Study, home: Path) -> Section | None:
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


def cost(study: Study, anchors: Anchors) -> Section:
    quality = study.shift_metric
    panels = [
        (ANSWER, quality, 1), (ANSWER, PASS_AT_1, 1), (MEMORY, quality, 2),
        (MEMORY, PASS_AT_1, 2),
    ]  # fmt: skip
    columns = (ANSWER, MEMORY, quality, PASS_AT_1)
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
        "Seconds to an answer are the median of some answers in a process of the controller's own, "
        "measured where the sweep began; those that a run counted with stand in its latency. "
        "Memory is what such a process holds at most, beyond one in which 'always' answers. Rules "
        "count as 0 of both. Only scenarios with something to decide.",
        quality_against_cost(study.shown, panels, means),
        Table(("controller", "family", *(m.title for m in columns)), rows, left=2),
    ]
    return Section("Quality against cost", "cost", [b for b in blocks if b is not None])
