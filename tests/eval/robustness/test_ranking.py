"""Rankings of sweeps with planted effects: order and ties come out as planted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rudder_eval.robustness.grid import Grid, compare
from rudder_eval.robustness.metrics import COMMUNICATION, HITS
from rudder_eval.robustness.ranking import holm, rank
from rudder_eval.robustness.tables import competitors, scenario_facts

EFFECTS = {"worst": 0.4, "good": 0.05, "twin": 0.05, "best": 0.0, "middle": 0.2}


def letters(ranking: Any) -> dict[str, str]:
    return {one.controller: one.letters for one in ranking.standings}


@pytest.mark.parametrize("scope", ["scenarios", "seeds"])
def test_order_and_ties_are_those_planted(planted: Any, scope: Any) -> None:
    cells = planted(EFFECTS, between=0.004, noise=0.01)
    names = [fact.name for fact in scenario_facts(cells)]
    found = rank(cells, names, competitors(cells), scope=scope)
    order = [one.controller for one in found.standings]
    assert (order[0], set(order[1:3]), order[3:]) == ("best", {"good", "twin"}, ["middle", "worst"])
    assert letters(found) == {"best": "a", "good": "b", "twin": "b", "middle": "c", "worst": "d"}
    ranks = {one.controller: (one.best, one.worst) for one in found.standings}
    assert ranks == {"best": (1, 1), "good": (2, 3), "twin": (2, 3), "middle": (4, 4),
                     "worst": (5, 5)}  # fmt: skip
    assert not found.told_apart("good", "twin")
    assert found.told_apart("good", "best")


def test_a_chain_of_ties_shares_letters_by_pairs() -> None:
    """a beside b and b beside c cannot be told apart, a and c can: b has both letters."""
    from rudder_eval.robustness.ranking import _letters

    found = _letters(["a", "b", "c"], [("a", "b"), ("b", "c")])
    assert found == {"a": "a", "b": "a b", "c": "b"}


def test_differences_are_found_under_much_larger_ones_between_scenarios(planted: Any) -> None:
    """Pairing: scenarios differ by factors, seeds by a fifth, controllers by 3 %."""
    cells = planted({"one": 0.0, "other": 0.03}, between=0.003, noise=0.01)
    grid = Grid.of(cells, COMMUNICATION)
    found = compare(grid, "other", "one")
    assert found.difference.exp().mean == pytest.approx(np.exp(0.03), abs=0.005)
    assert found.difference.low > 0
    assert (found.pairs, found.missing) == (80, 0)


def test_pairs_with_a_missing_side_are_counted(planted: Any) -> None:
    dead = [("one", "held", 0), ("one", "held", 1), ("other", "fan-out", 4)]
    cells = planted({"one": 0.0, "other": 0.0}, failed=dead)
    found = compare(Grid.of(cells, COMMUNICATION), "one", "other")
    assert (found.pairs, found.missing) == (77, 3)


def test_fewer_seeds_are_compared_on_their_own(planted: Any) -> None:
    """A controller that only ran in the seeds that are dear to all is not made worse by them."""
    cells = planted({"all": 0.05, "half": 0.0}, noise=0.002, between=0.001, seeds=10)
    grid = Grid.of(cells, COMMUNICATION)
    heavy = np.argsort(grid.values[0, 0])[5:]
    kept = [c for c in cells if c.controller == "all" or c.seed in heavy]
    found = rank(kept, grid.scenarios, ["all", "half"])
    assert [one.controller for one in found.standings] == ["half", "all"]
    assert [one.runs for one in found.standings] == [40, 80]


def test_higher_is_better_where_it_is(planted: Any) -> None:
    cells = planted({"few hits": 0.5, "many hits": 0.0})
    found = rank(cells, list({c.scenario: 0 for c in cells}), ["few hits", "many hits"], HITS)
    assert found.standings[0].controller == "many hits"
    assert found.standings[0].worst == 1


def test_nothing_is_told_from_a_single_run(planted: Any) -> None:
    cells = planted({"one": 0.0, "other": 1.0}, scenarios={"only": "id_val"}, seeds=1)
    found = rank(cells, ["only"], ["one", "other"])
    assert {one.letters for one in found.standings} == {"a"}
    assert {(one.best, one.worst) for one in found.standings} == {(1, 2)}


def test_equal_controllers_are_seldom_told_apart(planted: Callable[..., Any]) -> None:
    """Of 24 sweeps over four equal controllers, Holm lets at most some differ in any pair."""
    wrong = 0
    scenarios = dict.fromkeys("stuvw", "id_val")
    for seed in range(24):
        cells = planted(dict.fromkeys("abcd", 0.0), seeds=4, rng=seed, scenarios=scenarios)
        ranking = rank(cells, list("stuvw"), list("abcd"))
        wrong += any(one.letters != "a" for one in ranking.standings)
    assert wrong <= 4  # one in 20 is expected; more than 4 of 24 come once in 170 such tests


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, float("nan")]) == [pytest.approx(0.03), pytest.approx(0.06),
                                                      pytest.approx(0.06), None]  # fmt: skip
