"""What labelling came to: balance of the classes, agreement of the rules, what was dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .checks import PARTS, TRAIN
from .collection import Collection
from .examples import ExampleTable, examples_path

FEW = 0.1
"""A class with less of the examples than this is told."""


def report(
    collection: Collection, tables: Sequence[ExampleTable], unapplied: int
) -> dict[str, Any]:
    """Plain values.

    Args:
        collection: that was labelled.
        tables: one per rule.
        unapplied: questions whose answer never applied, and which no table holds.
    """
    return {
        "collection": collection.name,
        "folder": collection.folder,
        "runs": len(collection.runs),
        "questions": tables[0].table.num_rows,
        "unapplied": unapplied,
        "rules": [_rule(collection, table) for table in tables],
        "agreement": [
            row
            for at, one in enumerate(tables)
            for other in tables[at + 1 :]
            for row in _agreement(one, other)
        ],
    }


def _rule(collection: Collection, table: ExampleTable) -> dict[str, Any]:
    part, scenario = table.column("part"), table.column("scenario")
    by_part = {name: _balance(table, part == name) for name in PARTS}
    names = list(dict.fromkeys(run.scenario for run in collection.runs))
    return {
        "rule": str(table.rule),
        "file": examples_path(collection.folder, table.rule.name),
        **_balance(table, np.ones(len(part), np.bool_)),
        "parts": by_part,
        "scenarios": {name: _balance(table, scenario == name) for name in names},
        "notes": _notes(table, by_part),
    }


def _balance(table: ExampleTable, among: Any) -> dict[str, Any]:
    """Kept examples, the share of them that says replace, and what was dropped, by reason."""
    kept = table.kept() & among
    labels = table.column("label")[kept]
    reasons, counts = np.unique(table.column("dropped")[among].astype(np.str_), return_counts=True)
    return {
        "examples": int(kept.sum()),
        "replace_share": float(labels.mean()) if len(labels) else None,
        "dropped": {
            str(reason): int(count) for reason, count in zip(reasons, counts, strict=True) if reason
        },
    }


def _notes(table: ExampleTable, parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    name, found = table.rule.name, []
    for part in PARTS:
        share = parts[part]["replace_share"]
        if share is None:
            found.append(
                f"{name}: the {part} part has no examples. Collect more seeds, or scenarios in "
                "which a replacement changes what is fetched"
            )
        elif min(share, 1 - share) < FEW:
            rare, few = ("replace", share) if share < FEW else ("keep", 1 - share)
            found.append(
                f"{name}: only {few:.1%} of the {parts[part]['examples']:,} {part} examples say "
                f"{rare}, less than {FEW:.0%}. " + _remedy(table, rare, part)
            )
    return found


def _remedy(table: ExampleTable, rare: str, part: str) -> str:
    """What to change; the scenarios of the part that have most of the rare class are named."""
    if part != TRAIN:
        return (
            "Figures on it say little of that class: collect more seeds, or scenarios as those "
            "of the training part"
        )
    wanted = 1.0 if rare == "replace" else 0.0
    kept = table.kept(part)
    scenario, label = table.column("scenario")[kept], table.column("label")[kept]
    shares = {
        str(name): float((label[scenario == name] == wanted).mean())
        for name in dict.fromkeys(scenario)
    }
    best = max(shares, key=lambda name: shares[name])
    why = (
        "drifting access (seed_order = communities), fewer replacements before (fixed with a "
        "long interval), a policy that replaces well (score)"
        if rare == "replace"
        else "uniform access, frequent replacements before (always), a policy that thrashes "
        "(score-published), a large buffer"
    )
    horizon = table.rule.params.get("horizon")
    also = (
        f"; or {'lengthen' if rare == 'replace' else 'shorten'} the horizon: --rule "
        f"{table.rule.name}:horizon={2 * horizon if rare == 'replace' else max(horizon // 2, 1)}"
        if isinstance(horizon, int)
        else ""
    )
    return f"Collect more like {best} ({shares[best]:.0%}): {why}{also}"


def _agreement(one: ExampleTable, other: ExampleTable) -> list[dict[str, Any]]:
    """Where both rules have a label: overall, then by part."""
    both = one.kept() & other.kept()
    part = one.column("part")
    masks = {"all": both, **{name: both & (part == name) for name in PARTS}}
    rules = f"{one.rule.name}, {other.rule.name}"
    return [
        {"rules": rules, "part": name, **_agree(one.column("label")[m], other.column("label")[m])}
        for name, m in masks.items()
    ]


def _agree(one: Any, other: Any) -> dict[str, Any]:
    """Share that agrees, and Cohen's kappa; None where chance alone would agree fully."""
    from sklearn.metrics import cohen_kappa_score

    if not len(one):
        return {"examples": 0, "agree": None, "kappa": None}
    chance = len(np.unique(np.concatenate([one, other]))) == 1
    return {
        "examples": len(one),
        "agree": float((one == other).mean()),
        "kappa": None if chance else float(cohen_kappa_score(one, other)),
    }
