"""What of a report stands on a sweep's run in MLflow, beside its cells."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from ..robustness.intervals import Estimate
from .claims import Verdict
from .markdown import FIGURES
from .study import Study

_REFUSED = re.compile(r"[^\w\-. :/]")
"""What MLflow takes in no name of a metric."""
_VERDICTS: Mapping[Verdict, str] = {
    "supported": "supported",
    "not supported": "not_supported",
    "not testable here": "not_testable",
}


def robustness(study: Study) -> dict[str, float]:
    """Figures of competitors and bounds by ``WHAT/CONTROLLER``, or ``headroom/SCENARIO``.

    ``communication``, ``place_best`` and ``place_worst`` of the ranking over scenarios like these;
    by the metric that ID and OOD are compared by, ``id_``, ``ood_``, ``gap_`` and ``worst_METRIC``;
    ``low`` and ``high`` after a name are the ends of its 95 % interval. Beside them how many claims
    of the paper are ``claims_supported``, ``claims_not_supported`` and ``claims_not_testable``.
    """
    found: dict[str, float] = {}
    for one in study.ranking.standings:
        found |= _interval("communication", one.controller, one.mean)
        found[f"place_best/{one.controller}"] = one.best
        found[f"place_worst/{one.controller}"] = one.worst
    for shift in study.shifts:
        if shift.controller not in study.shown:
            continue
        key = shift.metric.key
        found |= _interval(f"id_{key}", shift.controller, shift.inside)
        found |= _interval(f"ood_{key}", shift.controller, shift.outside)
        found |= _interval(f"gap_{key}", shift.controller, shift.gap)
        found[f"worst_{key}/{shift.controller}"] = float(shift.worst_mean.mean)
    for fact in study.facts:
        if fact.known:
            found[f"headroom/{fact.name}"] = float(fact.headroom.mean)
    for verdict, name in _VERDICTS.items():
        found[f"claims_{name}"] = sum(claim.finding.verdict == verdict for claim in study.claims)
    return {_REFUSED.sub("_", name): value for name, value in found.items()}


def report_files(files: Mapping[str, Path]) -> dict[str, Path]:
    """What :func:`.write.write_report` wrote, by path among the artifacts."""
    folder = next(iter(files.values())).parent
    return {f"report/{path.name}": path for path in files.values()} | {
        f"report/{FIGURES}": folder / FIGURES
    }


def _interval(what: str, name: str, value: Estimate) -> dict[str, float]:
    """One seed has a mean and no interval."""
    ends = {"": value.mean, "_low": value.low, "_high": value.high}
    return {f"{what}{end}/{name}": float(x) for end, x in ends.items() if math.isfinite(x)}
