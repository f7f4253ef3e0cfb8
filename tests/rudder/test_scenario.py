"""Scenarios: defaults of the design, every wrong field in one error, round trip."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rudder.errors import ScenarioError
from rudder.scenario import Scenario


def test_defaults_are_those_of_the_design() -> None:
    s = Scenario()
    assert (s.model, s.layers, s.hidden, s.fan_out) == ("sage", 2, 64, (10, 25))
    assert (s.batch_size, s.epochs, s.parts, s.partition_method) == (200, 5, 4, "metis")
    assert (s.trainers, s.policy, s.fill, s.buffer) == (1, "score", "degree", 0.25)
    assert (s.prefetch_depth, s.rate, s.seed, s.mode) == (2, 0, 0, "async")


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(ScenarioError) as caught:
        Scenario.make(rate=-1, parts=0, model="gcn", bufer=1)
    message = str(caught.value)
    for part in ("rate = -1", "parts = 0", "model = 'gcn'", "bufer = 1: no such field"):
        assert part in message


@pytest.mark.parametrize(
    "wrong",
    [
        {"buffer": 1.5},
        {"buffer": -1},
        {"buffer": -0.1},
        {"buffer": True},
        {"buffer": "0.25"},
        {"buffer": math.nan},
        {"buffer": math.inf},
        {"rate": math.inf},
        {"rate": math.nan},
        {"lr": math.inf},
        {"lr": 0},
        {"dropout": 1},
        {"fan_out": ()},
        {"fan_out": (10, 0)},
        {"fan_out": (10, -2)},
        {"fan_out": (10,)},
        {"layers": 3},
        {"seed": 2**31},
        {"graph": ""},
        {"prefetch_depth": -1},
    ],
)
def test_values_out_of_range(wrong: dict[str, object]) -> None:
    with pytest.raises(ScenarioError, match=next(iter(wrong)).replace("layers", "fan_out")):
        Scenario.make(**wrong)


def test_a_share_and_a_count_stay_apart() -> None:
    assert isinstance(Scenario.make(buffer=1).buffer, int)
    assert isinstance(Scenario.make(buffer=1.0).buffer, float)


@given(
    buffer=st.integers(0, 10**7) | st.floats(0, 1),
    fan_out=st.lists(st.integers(1, 50) | st.just(-1), min_size=1, max_size=4),
    rate=st.floats(0, 1e5),
    seed=st.integers(0, 2**31 - 1),
)
def test_json_round_trips(buffer: float | int, fan_out: list[int], rate: float, seed: int) -> None:
    made = Scenario.make(
        buffer=buffer, fan_out=tuple(fan_out), layers=len(fan_out), rate=rate, seed=seed
    )
    back = Scenario.model_validate_json(made.model_dump_json())
    assert back == made
    assert type(back.buffer) is type(made.buffer)
    assert back.digest() == made.digest()
    assert Scenario.make(**made.model_dump(mode="json")) == made


def test_change_validates_anew_and_changes_the_digest() -> None:
    s = Scenario()
    assert s.change(rate=100.0).rate == 100
    assert s.change(rate=100.0).digest() != s.digest()
    assert s.change(rate=100.0).change(rate=0.0).digest() == s.digest()
    with pytest.raises(ScenarioError, match="rate"):
        s.change(rate=-1)


def test_drift_that_is_not_asked_for_leaves_the_digest_as_it_was() -> None:
    # found with the fields of the first version, which had no drift
    assert Scenario().digest() == "c0cbe99ad4111b2b"
    assert Scenario.make(rate_at={1: 20}).digest() != Scenario().digest()


def test_schedules_hold_from_their_epoch_on() -> None:
    s = Scenario.make(
        batch_size_at={"3": 400, 1: 50}, fan_out_at={2: (5, 5)}, rate=100, rate_at=[(4, 20)]
    )
    assert [s.batch_size_of(e) for e in range(5)] == [200, 50, 50, 400, 400]
    assert [s.fan_out_of(e) for e in (1, 2)] == [(10, 25), (5, 5)]
    assert [s.rate_of(e) for e in (3, 4)] == [100, 20]
    assert s.model_dump(mode="json")["batch_size_at"] == {"1": 50, "3": 400}
    assert Scenario.model_validate_json(s.model_dump_json()) == s
    assert s.change(seed=1).batch_size_at == s.batch_size_at
    assert len({s, s.change(seed=0)}) == 1  # hashable


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rate_at": {0: 3}}, "epoch 1 or later"),
        ({"rate_at": {5: 3}}, "the last of 5 epochs is 4"),
        ({"rate_at": 3}, "map epochs to values"),
        ({"rate_at": [(1, 2), (1, 3)]}, "two values for one epoch"),
        ({"rate_at": {1: -1}}, "rate_at"),
        ({"batch_size_at": {1: 0}}, "batch_size_at"),
        ({"fan_out_at": {1: (5,)}}, "fan_out_at has 1 counts for 2 layers"),
        ({"fan_out_at": {1: (5, 0)}}, "one count per layer"),
        ({"seed_order": "sorted"}, "seed_order"),
        ({"phases": 1}, "phases"),
    ],
)
def test_drift_out_of_range(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        Scenario.make(**wrong)
