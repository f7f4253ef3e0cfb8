"""What there is to decide: the best constant schedule beside ``timing-oracle``.

Both are replayed on the very trace that the controllers are judged on (a sampled one for a sweep on
the real engine), under the scenario's own policy, and answer at no latency.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rudder.replay.run import ratio

from .cells import WORTH_DECIDING, Cell

NEVER, ALWAYS, ORACLE = "random:p=0", "always", "timing-oracle"
INTERVALS = (2, 4, 8, 16, 32, 64)
CONSTANTS: Mapping[str, str] = {
    "constant(never)": NEVER,
    "constant(always)": ALWAYS,
    **{f"constant(every {n})": f"fixed:interval={n}" for n in INTERVALS},
}
"""Constant schedules by the name of their cells."""
NOTHING = "nothing to decide here"


@dataclass(frozen=True)
class Bounds:
    """What a scenario came to under one seed.

    Attributes:
        best: name of the constant schedule that fetched the fewest rows; "" where one is missing.
        best_constant: these rows.
        oracle: rows under ``timing-oracle``.
    """

    best: str = ""
    best_constant: int | None = None
    oracle: int | None = None

    @classmethod
    def of(cls, constants: Mapping[str, int | None], oracle: int | None) -> Bounds:
        """From rows fetched, by schedule; of equal ones the first."""
        known = {name: rows for name, rows in constants.items() if rows is not None}
        if len(known) < len(constants) or not known:
            return cls(oracle=oracle)
        best = min(known, key=lambda name: known[name])
        return cls(best, known[best], oracle)

    @property
    def headroom(self) -> float | None:
        """(best constant schedule - oracle) / oracle."""
        if self.best_constant is None or self.oracle is None:
            return None
        share = ratio(self.best_constant, self.oracle)
        return None if share is None else share - 1

    def beside(self, fetched: Any) -> dict[str, Any]:
        """What the summary of a run on the same trace gets."""
        regret = None
        if self.oracle is not None and isinstance(fetched, int | float):
            regret = ratio(fetched, self.oracle)
        return {**self.told(), "timing_oracle_fetched": self.oracle,
                "regret_to_timing_oracle": regret}  # fmt: skip

    def told(self) -> dict[str, Any]:
        """What holds for every run of the scenario and seed."""
        return {
            "best_constant": self.best_constant,
            "best_constant_schedule": self.best or None,
            "headroom": self.headroom,
        }


def headroom_table(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """A row per scenario, means over seeds; ``verdict`` is ``""`` where timing is worth something.

    Keys: ``name``, ``split``, ``seeds`` (in which it is known), ``best_constant`` (the schedule
    that was best at most seeds), ``fetched`` (its rows), ``headroom``, ``verdict``.
    """
    found: dict[str, dict[int, Cell]] = defaultdict(dict)
    splits: dict[str, str] = {}
    for cell in cells:
        splits.setdefault(cell.scenario, cell.split)
        if cell.value("headroom") is not None:
            found[cell.scenario].setdefault(cell.seed, cell)
    return [_row(name, split, list(found[name].values())) for name, split in splits.items()]


def _row(name: str, split: str, cells: Sequence[Cell]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": name, "split": split, "seeds": len(cells), "best_constant": None, "fetched": None,
        "headroom": None, "verdict": "not known",
    }  # fmt: skip
    if not cells:
        return row
    best = [str(cell.summary["best_constant_schedule"]) for cell in cells]
    mean = _mean(cells, "headroom")
    return row | {
        "best_constant": max(dict.fromkeys(best), key=best.count),
        "fetched": _mean(cells, "best_constant"),
        "headroom": mean,
        "verdict": "" if mean >= WORTH_DECIDING else NOTHING,
    }


def _mean(cells: Sequence[Cell], key: str) -> float:
    values = [value for cell in cells if (value := cell.value(key)) is not None]
    return sum(values) / len(values)
