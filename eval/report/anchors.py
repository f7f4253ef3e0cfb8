"""Where in a report the cells stand that a number comes from."""

from __future__ import annotations

from ..robustness.intervals import Estimate
from ..robustness.metrics import (
    Metric,
)
from .document import Item
from .numbers import NONE, shown
from .study import Study


class Anchors:
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


def mean_item(found: Estimate | None, metric: Metric, runs: int) -> Item:
    if found is None:
        return Item(NONE)
    return Item(shown(found, metric), note="" if found.values == runs else f"n={found.values}")
