"""The plain controllers: parameters, decisions, and what they fix of a scenario."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from rudder import Decision, Observation
from rudder.conformance.situations import episode, task
from rudder.errors import PairingError, ScenarioError, SpecError, UnknownNameError
from rudder.registries import CONTROLLERS
from rudder.scenario import Scenario
from rudder.steering import build_controller, resolve


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fixed:interval=0", "interval must be a whole number from 1, found 0"),
        ("fixed:interval=1.5", "found 1.5"),
        ("fixed:interval=true", "found True"),
        ("fixed:interval=often", "found 'often'"),
        ("fixed:intervall=4", "did you mean 'interval'"),
        ("random:p=1.01", "p must lie in 0..1"),
        ("random:p=-0.1", "p must lie in 0..1"),
        ("random:p=NaN", "p must be a number, found 'NaN'"),
        ("random:p=half", "found 'half'"),
        ("random:draw=-1", "draw must be a count from 0, found -1"),
        ("threshold:target=2", "target must lie in 0..1"),
        ("threshold:drop=NaN", "drop must be a number, found 'NaN'"),
        ("threshold:drop=-1", "drop must lie in 0..1"),
        ("threshold:limit=0", "limit must be above 0"),
        ("threshold:limit=-1", "limit must lie in 0 and above"),
        ("always:interval=4", "no parameter 'interval'"),
        ("always:deadline_s=0", "deadline_s must be a number of seconds above 0"),
        ("always:deadline_s=NaN", "deadline_s must be"),
        ("always:latency_s=-1", "latency_s must be"),
        ("always:latency_s=fast", "latency_s must be"),
    ],
)
def test_wrong_parameters_are_one_clear_error(spec: str, message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        resolve(Scenario(), spec)


@pytest.mark.parametrize("spec", ["random", "threshold"])
def test_numbers_that_text_cannot_write_are_refused_too(spec: str) -> None:
    make = CONTROLLERS.target(spec)
    for value in (float("nan"), float("inf"), None):
        with pytest.raises(SpecError, match=r"must lie in 0\.\.1"):
            make(value)


def test_an_unknown_controller_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'static'"):
        resolve(Scenario(), "statik")


def test_fixed_fields_are_laid_over_the_scenario() -> None:
    base = Scenario(policy="score", fill="random", buffer=0.1)
    assert resolve(base, "none").scenario == base.change(buffer=0)
    assert resolve(base, "static").scenario == base.change(policy="degree", fill="degree")
    massive = resolve(base, "massivegnn")
    assert massive.scenario == base.change(policy="massivegnn:interval=16")
    assert massive.spec.params == {"interval": 16}
    # The interval of the controller is the one in the policy's threshold.
    changed = resolve(base, "massivegnn:interval=8").scenario
    assert changed.policy == "massivegnn:interval=8"
    assert resolve(base, "always").scenario == base


@pytest.mark.parametrize("policy", ["lru", "lfu", "lfu-decay", "lookahead:window=3"])
def test_policies_that_decide_themselves_pair_with_always_only(policy: str) -> None:
    asked = Scenario(policy=policy)
    assert resolve(asked, "always").scenario == asked
    # These bring a policy of their own, or need none.
    assert resolve(asked, "static").scenario.policy == "degree"
    assert resolve(asked, "massivegnn").scenario.policy == "massivegnn:interval=16"
    assert resolve(asked, "none").scenario.buffer == 0
    for controller in ("fixed", "random", "threshold"):
        with pytest.raises(PairingError, match=f"hear the controller '{controller}'.*'always'"):
            resolve(asked, controller)


@pytest.mark.parametrize("policy", ["degree", "presampled", "score"])
def test_other_policies_pair_with_every_controller(policy: str) -> None:
    asked = Scenario(policy=policy)
    for controller in ("always", "fixed", "random", "threshold"):
        assert resolve(asked, controller).scenario == asked


def test_timing_belongs_to_steering() -> None:
    resolved = resolve(Scenario(), "fixed:interval=2,deadline_s=3,latency_s=0.5")
    assert (resolved.deadline_s, resolved.latency_s) == (3.0, 0.5)
    assert resolved.spec.params == {"interval": 2, "deadline_s": 3, "latency_s": 0.5}
    plain = resolve(Scenario(), "fixed")
    assert (plain.deadline_s, plain.latency_s) == (30.0, None)


def test_fields_that_name_no_parameter_or_no_field_are_refused() -> None:
    for name, fields, error in (
        ("test-bad-brace", {"policy": "massivegnn:interval={every}"}, SpecError),
        ("test-bad-field", {"bufer": 0}, ScenarioError),
    ):
        CONTROLLERS.register(name, "rudder_controllers.keeping:Keep", fields=fields)
        with pytest.raises(error):
            resolve(Scenario(), name)


def at(minibatch: int, **window: float) -> Observation:
    """An observation after so many minibatches."""
    ordinary = episode()[-1]
    return dataclasses.replace(
        ordinary, minibatch=minibatch, window=dataclasses.replace(ordinary.window, **window)
    )


def test_fixed_makes_up_for_a_multiple_that_passed_unseen() -> None:
    fixed = build_controller("fixed:interval=16")
    fixed.reset(task())
    # Observed after so many minibatches; the decision is for the next one.
    answers = [(n, fixed.decide(at(n)).replace) for n in (1, 14, 15, 16, 30, 31, 40, 50, 70)]
    assert answers == [
        (1, False),
        (14, False),
        (15, True),  # the 16th
        (16, False),
        (30, False),
        (31, True),  # the 32nd
        (40, False),
        (50, True),  # the 48th passed between two observations
        (70, True),  # the 64th likewise
    ]


def test_fixed_replaces_once_where_several_multiples_passed() -> None:
    fixed = build_controller("fixed:interval=4")
    fixed.reset(task())
    assert [fixed.decide(at(n)).replace for n in (1, 30, 31)] == [False, True, True]
    fixed.reset(task())
    assert [fixed.decide(at(n)).replace for n in (29, 30)] == [True, False]


def test_threshold_by_hand() -> None:
    threshold = build_controller("threshold:target=0.4,drop=0.05")
    threshold.reset(task())

    def ask(rate: float, stale: float = 0.5, minibatches: int = 400) -> Decision:
        # So long a window outweighs all before it: the smoothed rate is its own.
        window = {"hit_rate": rate, "stale_share": stale, "minibatches": minibatches}
        return threshold.decide(at(9, **window))

    assert not ask(0.60).replace
    assert not ask(0.57).replace
    # A slow drift adds up: 6 points below the best since the last replacement.
    fell = ask(0.54)
    assert fell.replace
    assert (fell.expected_hits, fell.expected_communication) == ("increase", "decrease")
    # Measured anew from here on.
    kept = ask(0.54)
    assert not kept.replace
    assert (kept.expected_hits, kept.expected_communication) == ("stagnant", "stagnant")
    assert ask(0.39).replace
    assert not ask(0.39, stale=0.0).replace
    assert ask(0.39).replace
    assert not threshold.decide(at(9, hit_rate=0.0, remote_sampled=0)).replace


def test_threshold_rests_after_a_replacement_and_smooths() -> None:
    threshold = build_controller("threshold:target=0,drop=0.02")
    threshold.reset(task())
    rates = [0.6, 0.6, 0.6, 0.55, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5]
    answers = [
        threshold.decide(at(9, minibatches=1, hit_rate=rate, stale_share=0.5)).replace
        for rate in rates
    ]
    # A new window weighs 1 - exp(-1/4) = 0.2212: 0.55 lowers the smoothed rate by 1.1 points only,
    # the first 0.5 to 0.5738 (0.0262 below 0.6). Then 0.5 is the best since, and stays.
    assert answers == [False] * 6 + [True] + [False] * 4


def test_threshold_replaces_no_more_than_a_share_of_the_misses() -> None:
    threshold = build_controller("threshold:target=0.7,limit=0.25")
    threshold.reset(task())
    # 4 minibatches of 1000 remote nodes, 600 of them missed; 7500 rows, half of them stale.
    seen = {"minibatches": 4, "remote_sampled": 4000, "hit_rate": 0.4, "stale_share": 0.5}
    assert threshold.decide(at(9, **seen)).share == pytest.approx(0.25 * 600 / 3750)
    assert threshold.decide(at(9, **{**seen, "stale_share": 0.01})).share == 1.0


def test_random_draws_by_seed_rank_and_minibatch() -> None:
    def drawn(
        seed: int = 0, rank: int = 0, minibatches: range = range(1, 200), draw: int = 0
    ) -> list[bool]:
        controller = build_controller(f"random:p=0.25,draw={draw}")
        controller.reset(task(seed, rank))
        return [controller.decide(at(n)).replace for n in minibatches]

    first = drawn()
    assert first != drawn(seed=1)
    assert first != drawn(rank=1)
    assert first != drawn(draw=1)
    # Independent of what was observed before: slower answers see a part of the same draws.
    assert drawn(minibatches=range(1, 200, 7)) == first[::7]
    # 199 draws at 0.25: mean 49.75, standard deviation 6.1; within four of them.
    assert 25 < sum(first) < 75


def test_the_readme_lists_every_spec(repository: Path) -> None:
    """Agents by the list of their own folder, all others in the first cells of the table."""
    folder = repository / "controllers"
    rows = re.findall(r"^\| (.+?) \|", (folder / "README.md").read_text(), flags=re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([a-z0-9.-]+)[`:]", row)}
    agents = set(re.findall(r"`([a-z0-9.-]+)`", (folder / "llm" / "README.md").read_text()))
    specs = {path.stem for path in (folder / "specs").glob("*.toml")}
    of_agents = {name for name in specs if CONTROLLERS.entry(name).target.endswith(":Agent")}
    assert specs - of_agents <= listed <= specs
    assert of_agents <= agents
