"""The paper's claims, each beside what these cells say about it.

Every verdict is computed. A claim is *supported* where the 95 % interval of its test lies on the
claimed side, *not supported* where it does not, and *not testable here* where cells, controllers or
intervals that it takes are missing. Margins that the paper does not give are ours and are told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from ..cells import Cell
from ..robustness.grid import Comparison, Grid, compare, compare_values
from ..robustness.intervals import LEVEL, Estimate, apart, estimate
from ..robustness.metrics import (
    ANSWER,
    COMMUNICATION,
    EPOCH_SECONDS,
    INTERVAL,
    LATENCY,
    ORACLE_REGRET,
    PASS_AT_1,
    PASS_CONSTANT,
    REPLACE_SHARE,
    VALID,
    Metric,
)
from ..robustness.ranking import holm
from ..robustness.tables import COMPETING, Shift, families, id_split, scenario_facts, shifts
from .numbers import change, count, interval, number, shown

Verdict = Literal["supported", "not supported", "not testable here"]
HOLDS_UP = 0.05
"""More regret out of distribution than this is no holding up (ours)."""
ANSWERS_VALIDLY = 0.95
"""Share of valid answers from which on a model serves (ours)."""
PREDICTS = 0.8
"""Pass@1 of the paper's best small model."""
ORACLE = "timing-oracle"


@dataclass(frozen=True)
class Finding:
    """What cells say about a claim.

    Attributes:
        verdict: see the module.
        result: the numbers, or what is missing.
        controllers: whose cells they come from.
        runs: how many cells went in.
    """

    verdict: Verdict
    result: str
    controllers: tuple[str, ...] = ()
    runs: int = 0


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes:
        claim: in our words.
        test: what is computed, and when that supports it.
        finding: what came out.
    """

    claim: str
    test: str
    finding: Finding


class Evidence:
    """What claims are tested on."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = list(cells)
        self.families = families(self.cells)
        facts = scenario_facts(self.cells)
        self.scenarios = [fact.name for fact in facts]
        decided = {fact.name for fact in facts if fact.decides}
        self.decided = [cell for cell in self.cells if cell.scenario in decided]
        self._grids: dict[str, Grid] = {}

    def of(self, *kinds: str) -> list[str]:
        """Controllers of some families."""
        return [name for name, family in self.families.items() if family in kinds]

    def grid(self, metric: Metric) -> Grid:
        if metric.key not in self._grids:
            self._grids[metric.key] = Grid.of(self.cells, metric)
        return self._grids[metric.key]

    def named(self, name: str) -> str | None:
        """A controller by its name without parameters."""
        return next((n for n in self.families if n.partition(":")[0] == name), None)

    def shift(self, metric: Metric, name: str, members: list[str]) -> Shift | None:
        """ID beside OOD of several as one, where there is something to decide."""
        found = shifts(self.decided, metric, {name: members}) if members else []
        return found[0] if found else None


def claims(cells: Sequence[Cell]) -> list[Claim]:
    """All claims with what these cells say, in the order of the paper."""
    evidence = Evidence(cells)
    return [Claim(claim, test, find(evidence)) for claim, test, find in _CLAIMS]


def _missing(what: str) -> Finding:
    return Finding("not testable here", what)


def _verdict(holds: bool) -> Verdict:
    return "supported" if holds else "not supported"


def _steered(evidence: Evidence) -> list[str]:
    """What the paper steers with."""
    return evidence.of("llm", "classifier")


def _halves(evidence: Evidence) -> Finding:
    names = _steered(evidence)
    grid = evidence.grid(COMMUNICATION)
    means = {name: grid.mean(name).exp() for name in names}
    means = {name: mean for name, mean in means.items() if mean.known}
    if not means:
        return _missing("needs an LLM agent or a classifier, in several runs")
    best = min(means, key=lambda name: means[name].mean)
    below = sum(mean.high < 0.5 for mean in means.values())
    result = (
        f"{below} of {count(len(means), 'steered controller')} below 50 %; least: {best} fetches "
        f"{interval(means[best], percent=True)} of what no buffer does"
    )
    runs = sum(mean.values for mean in means.values())
    return Finding(_verdict(below > 0), result, tuple(means), runs)


def _beats(reference: str, metric: Metric, says: str) -> Callable[[Evidence], Finding]:
    def find(evidence: Evidence) -> Finding:
        against = evidence.named(reference)
        if against is None:
            return _missing(f"needs the controller {reference}")
        found = [compare(evidence.grid(metric), n, against) for n in _steered(evidence)]
        return _better(evidence, found, metric, says.format(against))

    return find


def _better(evidence: Evidence, found: list[Comparison], metric: Metric, says: str) -> Finding:
    """Is one of several better than what all are compared with? Holm's correction over them."""
    found = [one for one in found if one.difference.known]
    if not found:
        return _missing(f"needs an LLM agent or a classifier with pairs of {metric.title}")
    apart_ = [p is not None and p < 1 - LEVEL for p in holm([o.difference.p for o in found])]
    better = sum(d and o.difference.mean < 0 for d, o in zip(apart_, found, strict=True))
    worse = sum(d and o.difference.mean > 0 for d, o in zip(apart_, found, strict=True))
    best = min(found, key=lambda one: one.difference.mean)
    result = (
        f"{better} of {len(found)} better, {worse} worse, {len(found) - better - worse} not told "
        f"apart; best: {best.first}, {change(best.difference.exp(), metric)} {says}"
    )
    if metric is EPOCH_SECONDS and any(cell.engine == "replay" for cell in evidence.cells):
        result += " (modelled seconds)"
    pairs = sum(one.pairs for one in found)
    return Finding(_verdict(better > 0), result, tuple(o.first for o in found), pairs)


def _classifiers_degrade(evidence: Evidence) -> Finding:
    return _gap(evidence, "classifier", lambda gap: gap.low > 1)


def _agents_hold_up(evidence: Evidence) -> Finding:
    return _gap(evidence, "llm", lambda gap: gap.high < 1 + HOLDS_UP)


def _agents_on_graphs(evidence: Evidence) -> Finding:
    return _gap(evidence, "llm", lambda gap: gap.high < 1 + HOLDS_UP, axis="ood_graph")


def _gap(
    evidence: Evidence, family: str, holds: Callable[[Estimate], bool], axis: str = ""
) -> Finding:
    names = evidence.of(family)
    shift = evidence.shift(ORACLE_REGRET, family, names)
    where = axis or "OOD"
    if shift is None or (axis and axis not in shift.axes):
        return _missing(
            f"needs {family} cells in distribution and in {where} where there is something to "
            "decide, with regret to timing-oracle"
        )
    gap = shift.axes[axis] if axis else shift.gap
    if not gap.known:
        return _missing("too few scenarios and seeds for an interval")
    together = ", taken as one" if len(names) > 1 else ""
    result = (
        f"regret {interval(shift.inside)} in distribution; in {where} "
        f"{change(gap, ORACLE_REGRET)}: {' and '.join(names)}{together}"
    )
    return Finding(_verdict(holds(gap)), result, tuple(names), gap.values)


def _replace_too_often(evidence: Evidence) -> Finding:
    names = evidence.of("classifier")
    ood = [cell.scenario for cell in evidence.decided if cell.axis]
    grid = Grid.of(evidence.decided, REPLACE_SHARE)
    if not names or ORACLE not in grid.controllers or not ood:
        return _missing(f"needs classifiers and {ORACLE} out of distribution")
    found = compare_values(
        grid.of_several(names, ood), grid.of_one(ORACLE, ood), "classifiers", ORACLE
    )
    if not found.difference.known:
        return _missing("too few pairs that tell how often replace was said")
    result = (
        f"out of distribution they say replace {change(found.difference, REPLACE_SHARE)} more "
        f"often than {ORACLE}"
    )
    return Finding(_verdict(found.difference.low > 0), result, (*names, ORACLE), found.pairs)


def _degrade_less(evidence: Evidence) -> Finding:
    agents, classifiers = evidence.of("llm"), evidence.of("classifier")
    anchor = id_split(evidence.decided)
    if not agents or not classifiers or anchor is None:
        return _missing("needs LLM agents and classifiers, in distribution and out of it")
    grid = Grid.of(evidence.decided, ORACLE_REGRET)
    sides = [
        [cell.scenario for cell in evidence.decided if inside(cell)]
        for inside in (lambda cell: cell.split == anchor, lambda cell: bool(cell.axis))
    ]
    inside, outside = (
        estimate(grid.of_several(agents, side) - grid.of_several(classifiers, side))
        for side in sides
    )
    found = apart(inside, outside)
    if not found.known:
        return _missing("too few scenarios and seeds, or none with something to decide on a side")
    result = (
        f"agents beside classifiers: {change(inside.exp(), ORACLE_REGRET)} regret in distribution, "
        f"{change(outside.exp(), ORACLE_REGRET)} out of it; the gap changes by "
        f"{change(found.exp(), ORACLE_REGRET)}"
    )
    return Finding(_verdict(found.high < 0), result, (*agents, *classifiers), found.values)


def _valid(evidence: Evidence) -> Finding:
    grid = evidence.grid(VALID)
    means = {name: grid.mean(name) for name in evidence.of("llm")}
    means = {name: VALID.shown(mean) for name, mean in means.items() if mean.known}
    if not means:
        return _missing("needs an LLM agent in several runs")
    served = [name for name, mean in means.items() if mean.low >= ANSWERS_VALIDLY]
    told = "; ".join(f"{name}: {shown(mean, VALID)}" for name, mean in means.items())
    runs = sum(mean.values for mean in means.values())
    return Finding(_verdict(len(served) == len(means)), told, tuple(means), runs)


def _predicts(evidence: Evidence) -> Finding:
    own, constant = evidence.grid(PASS_AT_1), evidence.grid(PASS_CONSTANT)
    found = {}
    for name in evidence.of("llm"):
        mean = own.mean(name)
        beside = compare_values(own.of_one(name), constant.of_one(name), name, "constant")
        if mean.known and beside.difference.known:
            found[name] = PASS_AT_1.shown(mean), beside.difference
    if not found:
        return _missing("needs an LLM agent whose predictions settled, in several runs")
    best = max(found, key=lambda name: found[name][0].mean)
    holds = any(mean.high >= PREDICTS and more.low > 0 for mean, more in found.values())
    mean, more = found[best]
    result = (
        f"{best}: Pass@1 {shown(mean, PASS_AT_1)}, {change(more, PASS_AT_1)} beside always "
        "predicting what is most frequent"
    )
    runs = sum(mean.values for mean, _ in found.values())
    return Finding(_verdict(holds), result, tuple(found), runs)


def _no_fixed_rule(evidence: Evidence) -> Finding:
    """Constant schedules: those run for headroom; else controllers that never look."""
    names = evidence.of("constant") or [
        name
        for name in evidence.of("baseline", "heuristic")
        if name.partition(":")[0] in ("static", "always", "fixed")
    ]
    grid = Grid.of(evidence.decided, COMMUNICATION)
    found = {n: grid.of_one(n) for n in names if np.isfinite(grid.of_one(n)).any()}
    if len(found) < 2 or len(grid.scenarios) < 2:
        return _missing("needs two constant schedules in two scenarios with something to decide")
    with np.errstate(all="ignore"):
        means = np.array([_scenario_means(values) for values in found.values()])
    complete = np.isfinite(means).all(0)
    if complete.sum() < 2:
        return _missing("no two scenarios in which all constant schedules ran")
    excess = means[:, complete] - means[:, complete].min(0)
    worst = np.exp(excess.max(1)) - 1
    best = int(worst.argmin())
    winners = len(set(means[:, complete].argmin(0).tolist()))
    result = (
        f"{winners} of {len(found)} schedules are best somewhere in {int(complete.sum())} "
        f"scenarios; the one that never errs much, {list(found)[best]}, fetches up to "
        f"{number(worst[best], percent=True)} more than the best one"
    )
    runs = int(np.isfinite(np.array(list(found.values()))).sum())
    return Finding(_verdict(worst[best] > 0.02), result, tuple(found), runs)


def _scenario_means(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[float]:
    return [float(row[np.isfinite(row)].mean()) if np.isfinite(row).any() else math.nan
            for row in values]  # fmt: skip


def _interval_follows(evidence: Evidence) -> Finding:
    latency, between = evidence.grid(LATENCY), evidence.grid(INTERVAL)
    names = evidence.of(*COMPETING)
    points = [
        (name, latency.mean(name).mean, between.mean(name).mean)
        for name in names
        if latency.mean(name).mean > 0 and between.mean(name).values
    ]
    if len({point[1] for point in points}) < 4:
        return _missing("needs four controllers that take different times to answer")
    ranks = [stats.rankdata([point[side] for point in points]) for side in (1, 2)]
    if len(set(ranks[1])) == 1:
        return _missing("the time between replacements is the same for all controllers")
    found = stats.permutation_test(
        (ranks[0],), lambda order: stats.pearsonr(order, ranks[1]).statistic,
        permutation_type="pairings", rng=np.random.default_rng(0),
    )  # fmt: skip
    result = (
        f"rank correlation {found.statistic:.2f} (p = {found.pvalue:.2g} by permutations) between "
        f"seconds per answer and minibatches between replacements, {len(points)} controllers"
    )
    holds = bool(found.statistic > 0 and found.pvalue < 1 - LEVEL)
    runs = sum(between.mean(point[0]).values for point in points)
    return Finding(_verdict(holds), result, tuple(p[0] for p in points), runs)


def _classifiers_are_fast(evidence: Evidence) -> Finding:
    grid = evidence.grid(LATENCY)
    agents, classifiers = evidence.of("llm"), evidence.of("classifier")
    if not agents or not classifiers:
        return _missing("needs LLM agents and classifiers")
    own_cells = [cell for cell in evidence.cells if cell.controller in (*agents, *classifiers)]
    if any(cell.value("latency_s") is not None for cell in own_cells):
        return _measured_apart(evidence, agents, classifiers)
    found = compare_values(
        grid.of_several(classifiers), grid.of_several(agents), "classifiers", "agents"
    )
    own = estimate(grid.of_several(classifiers)), estimate(grid.of_several(agents))
    if not found.difference.known or own[0].mean == own[1].mean == 0:
        return _missing("latencies were not measured")
    result = f"median answer after {interval(own[0])} s, agents after {interval(own[1])} s"
    return Finding(
        _verdict(found.difference.high < 0), result, (*classifiers, *agents), found.pairs
    )


def _measured_apart(
    evidence: Evidence, agents: Sequence[str], classifiers: Sequence[str]
) -> Finding:
    """Replays answer after the seconds they are told: what was measured once per controller."""
    grid = evidence.grid(ANSWER)
    sides = []
    for names in (classifiers, agents):
        means = {name: grid.mean(name).mean for name in names if grid.mean(name).values}
        if not means or not all(value > 0 for value in means.values()):
            return _missing("needs measured answers of all agents and classifiers")
        sides.append(means)
    slowest, fastest = max(sides[0].values()), min(sides[1].values())
    result = (
        f"the slowest classifier answers after {number(slowest)} s, the fastest agent after "
        f"{number(fastest)} s; each measured once in a process of its own, not in these runs"
    )
    names = (*classifiers, *agents)
    runs = sum(grid.mean(name).values for name in names)
    return Finding(_verdict(slowest < fastest), result, names, runs)


_CLAIMS: tuple[tuple[str, str, Callable[[Evidence], Finding]], ...] = (
    (
        "A steered buffer fetches less than half of what training without one does.",
        "communication as a share of no buffer, over all scenarios: below 50 % for one of the "
        "agents and classifiers",
        _halves,
    ),
    (
        "Steered beats static prefetching.",
        "rows fetched, paired with static, Holm over controllers: fewer for one of them",
        _beats("static", COMMUNICATION, "rows beside {}"),
    ),
    (
        "Steered epochs are shorter than under static prefetching.",
        "epoch seconds, paired with static, Holm over controllers: fewer for one of them",
        _beats("static", EPOCH_SECONDS, "seconds beside {}"),
    ),
    (
        "Steered epochs are shorter than without prefetching.",
        "epoch seconds, paired with none, Holm over controllers: fewer for one of them",
        _beats("none", EPOCH_SECONDS, "seconds beside {}"),
    ),
    (
        "No fixed rule stays right.",
        "over scenarios with something to decide, each constant schedule errs by more than 2 % "
        "(ours) in one of them",
        _no_fixed_rule,
    ),
    (
        "Classifiers degrade out of distribution.",
        "regret to timing-oracle, OOD beside ID: more",
        _classifiers_degrade,
    ),
    (
        "Out of distribution, classifiers replace too often.",
        "share of answers that say replace, OOD, paired with timing-oracle: larger",
        _replace_too_often,
    ),
    (
        "LLM agents hold up on unseen configurations.",
        f"regret to timing-oracle, OOD beside ID: less than {100 * HOLDS_UP:g} % more (ours)",
        _agents_hold_up,
    ),
    (
        "LLM agents hold up on unseen graphs.",
        f"the same in ood_graph alone: less than {100 * HOLDS_UP:g} % more (ours)",
        _agents_on_graphs,
    ),
    (
        "LLM agents degrade less than classifiers.",
        "regret of agents beside classifiers, paired: smaller in OOD than in ID",
        _degrade_less,
    ),
    (
        "Small language models answer validly.",
        f"share of valid answers: at least {100 * ANSWERS_VALIDLY:g} % (ours) for every agent here",
        _valid,
    ),
    (
        "Agents foresee what their decisions do (Pass@1 about 80 %).",
        "Pass@1 of an agent: its interval reaches 80 %, and it is above always predicting the "
        "most frequent effect",
        _predicts,
    ),
    (
        "Classifiers answer faster than agents.",
        "median seconds per answer, paired",
        _classifiers_are_fast,
    ),
    (
        "The time between replacements follows from the time an answer takes.",
        "rank correlation over controllers above 0",
        _interval_follows,
    ),
)
