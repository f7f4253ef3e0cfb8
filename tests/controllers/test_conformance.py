"""Every registered controller keeps the contract: one test per controller and check."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rudder import Controller
from rudder.conformance import Check, Subject, controller_checks
from rudder.registries import CONTROLLERS
from rudder.steering import build_controller

VARIANTS = [
    "fixed:interval=1",
    "threshold:target=0,drop=0",
    "threshold:target=1,drop=1",
    "random:p=0",
    "random:p=1",
]


NEEDS_A_RUN = {"shuffled"}  # checked in test_classifier.py, which has one
LLM = [n for n in CONTROLLERS.names() if n not in NEEDS_A_RUN and build_controller(n).tags.llm]
CHECKED = [name for name in CONTROLLERS.names() if name not in {*NEEDS_A_RUN, *LLM}]
# The one model that is here, with the shortest prompt; as the spec has it in the full tests.
SHORT = "smollm2-135m:template=brief-v1,shots=1"


@pytest.mark.parametrize(("subject", "check"), controller_checks([*CHECKED, *VARIANTS]))
def test_conformance(subject: Subject, check: Check) -> None:
    check.run(subject)


@pytest.fixture(scope="session")
def weights() -> Any:
    """What the model's controllers share, loaded once."""
    return build_controller(SHORT).load(lambda phase, share: None)


def sharing(subject: Subject, loaded: Any) -> Subject:
    """The subject with controllers that find their model loaded, as a host's trainers do."""

    def build() -> Controller:
        controller = subject.build()
        controller.adopt(loaded)
        return controller

    return dataclasses.replace(subject, build=build)


OWN_LOAD = ("can_be_pickled_before_reset", "works_in_its_own_process")  # not what was adopted


QUICK = (
    "builds", "resets", "can_be_pickled_before_reset", "decisions_are_valid",
    "same_seed_same_decisions", "reset_forgets_the_run_before", "closes_at_any_time",
    "works_at_the_extremes",
)  # fmt: skip
"""What is checked in every test run: an episode takes the model some seconds."""


def by_length(checks: list[Any]) -> list[Any]:
    return [
        param if param.values[1].name in QUICK
        else pytest.param(*param.values, id=param.id, marks=[*param.marks, pytest.mark.full])
        for param in checks
    ]  # fmt: skip


@pytest.mark.parametrize(("subject", "check"), by_length(controller_checks([SHORT])))
def test_a_language_model_conforms(subject: Subject, check: Check, weights: Any) -> None:
    check.run(subject if check.name in OWN_LOAD else sharing(subject, weights))


@pytest.mark.full
@pytest.mark.parametrize(("subject", "check"), controller_checks(["smollm2-135m"]))
def test_the_default_agent_conforms(subject: Subject, check: Check) -> None:
    check.run(subject)


@pytest.mark.parametrize("name", LLM)
def test_agents_are_built_without_their_models(name: str) -> None:
    """Most models are not here: their specs are built, told apart and looked at, not loaded."""
    tags = build_controller(name).tags
    assert (tags.llm, tags.own_process, tags.shared) == (True, True, True)
    params = CONTROLLERS.resolve(name).params
    assert params["billions"] > 0
    assert (params["backend"] == "openai") == name.endswith("-server")
    assert {check.name for check in build_controller(name).needs()} >= {"memory"}
