"""The report of a study: which sections it has, and what there is to decide, first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..cells import WORTH_DECIDING
from ..robustness.intervals import FEW, LEVEL, RESAMPLES
from ..robustness.tables import splits
from .anchors import Anchors
from .behaviour import cost, drift
from .comparisons import claims, controls, id_ood, leaderboard, scenarios
from .document import Document, Item, Picture, Section, Table
from .listings import appendix, failures, splits_section
from .numbers import NONE, count, interval, number
from .study import Study


def build(study: Study, home: Path) -> Document:
    """The report; what has no cells to speak of says so, or is left out.

    Args:
        home: data directory, where runs lie whose decisions are drawn.
    """
    anchors = Anchors(study)
    sections = [
        _overview(study),
        _headroom(study),
        leaderboard(study, anchors),
        id_ood(study, anchors),
        scenarios(study, anchors),
        drift(study, home),
        cost(study, anchors),
        controls(study, anchors),
        claims(study, anchors),
        splits_section(study, anchors),
        failures(study, anchors),
        _methods(study),
        *appendix(study, anchors, home),
    ]
    return Document(
        f"Rudder: {study.name}", tuple(section for section in sections if section is not None)
    )


def _overview(study: Study) -> Section:
    cells = study.cells
    failed = len(study.failures)
    facts: list[tuple[str, str]] = [
        (key, _told(value)) for key, value in study.head.items() if _told(value)
    ]
    facts += [
        ("engine", ", ".join(study.engines)),
        ("controllers", _counted(study)),
        ("scenarios", f"{len(study.facts)} in {', '.join(splits(cells))}"),
        ("seeds", ", ".join(str(seed) for seed in study.seeds)),
        ("cells", f"{len(cells) - failed} finished, {failed} failed{_beside(study)}"),
    ]
    rows = [[Item(key), Item(value)] for key, value in facts]
    blocks: list[str | Table | Picture] = [Table(("sweep", study.name), rows, left=2)]
    if study.missing:
        blocks.append(
            f"{count(study.missing, 'cell')} of this sweep not run yet: what follows is of a part "
            "of it. 'rudder evaluate' goes on with it."
        )
    if failed:
        blocks.append(
            f"{count(failed, 'cell')} failed: see the list. Where a number rests on fewer runs "
            "than its neighbours, its count stands beside it."
        )
    return Section("Overview", "overview", blocks)


def _counted(study: Study) -> str:
    """Those that are compared, apart from what stands beside them."""
    beside = len(study.families) - len(study.competitors)
    return f"{len(study.competitors)} compared" + (
        f"; beside them {beside}: oracle, constant schedules and controls" if beside else ""
    )


def _beside(study: Study) -> str:
    beside = sum(cell.controller not in study.competitors for cell in study.cells)
    return f"; {beside} of them of what stands beside" if beside else ""


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
        "schedule - timing-oracle) / timing-oracle, in rows fetched: about all that a "
        f"controller can be worth. Scenarios below {100 * WORTH_DECIDING:g} % enter no ranking."
    ]
    rows = []
    for fact in study.facts:
        says = "decides" if fact.decides else "nothing to decide here"
        rows.append(
            [
                Item(fact.name, strong=fact.decides), Item(fact.split),
                Item(says if fact.known else "headroom not known"), Item(fact.schedule or NONE),
                Item(interval(fact.headroom, percent=True), note=f"n={fact.seeds}"),
                Item(number(fact.best_constant.mean)),
                Item(str(fact.runs - fact.failed), "scenarios"),
                Item(str(fact.failed) if fact.failed else ""),
            ]
        )  # fmt: skip
    headings = ("scenario", "split", "", "best constant", "headroom", "its rows", "runs", "failed")
    blocks.append(Table(headings, rows, left=4))
    if idle:
        blocks.append(f"Nothing to decide in: {', '.join(idle)}.")
    if unknown:
        blocks.append(
            "Where headroom is not known (no oracle was run), scenarios enter rankings: "
            f"{', '.join(unknown)}."
        )
    return Section("What there is to decide", "headroom", blocks)


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
