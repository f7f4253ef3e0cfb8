"""Examples from an agent's own decisions."""

from __future__ import annotations

import dataclasses

import pytest
from rudder_controllers.llm.incontext import ORDERS, Example, Experience

from rudder import Observation
from rudder.conformance.situations import episode


def seen() -> tuple[Experience, list[Observation]]:
    experience, observations = Experience(3, "recent"), episode()
    for observation in observations:
        experience.see(observation)
    return experience, observations


def test_every_settled_decision_becomes_one_example() -> None:
    experience, observations = seen()
    settled = {past.minibatch: past for o in observations for past in o.history if past.window}
    assert len(experience) == len(settled)
    newest = experience.chosen(observations[-1].window)
    assert len(newest) == 3
    last = settled[max(settled)]
    assert newest[-1].reward == last.reward
    assert newest[-1].replace == last.decision.replace
    # What was shown before the decision, not after it.
    shown = [o.window for o in observations if o.minibatch <= max(settled)][-1]
    assert newest[-1].window == shown


def example(reward: float, replace: bool, hit_rate: float = 0.5) -> Example:
    window = dataclasses.replace(episode()[0].window, hit_rate=hit_rate)
    return Example(window, replace, "increase", "decrease", reward)


@pytest.mark.parametrize(
    ("order", "rewards"),
    [
        # Remembered, oldest first: 5 (replace), -2, 7 (replace), 1 (keep), 3 (replace).
        ("recent", [7, 1, 3]),
        ("best-last", [1, 3, 7]),
        # The newest of either kind in turn: 3 (replace), 1 (keep), 7 (replace), newest last.
        ("balanced", [7, 1, 3]),
        # By %-Hits 0.9, 0.1, 0.5, 0.4, 0.8 against 0.46: the nearest last.
        ("similar-last", [3, 1, 7]),
    ],
)
def test_orders(order: str, rewards: list[float]) -> None:
    experience = Experience(3, order)  # type: ignore[arg-type]
    experience.remember(
        [
            example(5, True, 0.9), example(-2, False, 0.1), example(7, True, 0.5),
            example(1, False, 0.4), example(3, True, 0.8),
        ]
    )  # fmt: skip
    window = example(0, True, 0.46).window
    assert [e.reward for e in experience.chosen(window)] == rewards
    assert order in ORDERS


def test_balanced_takes_what_there_is() -> None:
    experience = Experience(4, "balanced")
    experience.remember([example(1, True), example(2, True), example(3, True)])
    assert [e.reward for e in experience.chosen(example(0, True).window)] == [1, 2, 3]


def test_without_shots_nothing_is_chosen() -> None:
    experience = Experience(0)
    experience.remember([example(1, True)])
    assert experience.chosen(example(0, True).window) == []
