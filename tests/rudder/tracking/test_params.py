from __future__ import annotations

import hashlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_param

from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.tracking.params import MAX_NAME, MAX_VALUE, clip, flatten

KEYS = st.text(min_size=1, max_size=8) | st.sampled_from(["..", "a/../b", "/", "x" * 300, "é$"])
VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=20)


def test_scenario_fields_keep_their_names_and_the_controller_its_own() -> None:
    params = flatten(Scenario.make(), Spec.parse("threshold:target=0.5,bounds=[1,2]"))
    assert params["graph"] == "debian"
    assert params["fan_out"] == "[10, 25]"
    assert params["buffer"] == "0.25"
    assert params["controller"] == "threshold"
    assert params["controller.target"] == "0.5"
    assert params["controller.bounds"] == "[1, 2]"
    assert set(Scenario.model_fields) <= set(params)


def test_nested_parameters_become_dotted_names() -> None:
    params = flatten(Scenario.make(), Spec("x", {"model": {"name": "m", "layers": {"n": 2}}}))
    assert params["controller.model.name"] == "m"
    assert params["controller.model.layers.n"] == "2"


def test_a_long_value_is_cut_visibly() -> None:
    text = "a" * 20_000
    params = flatten(Scenario.make(), Spec("x", {"prompt": text}))
    value = params["controller.prompt"]
    assert len(value) == MAX_VALUE
    assert "20000 characters" in value
    assert hashlib.sha256(text.encode()).hexdigest()[:16] in value


@given(st.text(max_size=400), st.integers(120, 300))
def test_clip_never_exceeds_its_limit_and_leaves_short_text_alone(text: str, limit: int) -> None:
    assert len(clip(text, limit)) <= limit
    if len(text) <= limit:
        assert clip(text, limit) == text


@given(st.dictionaries(KEYS, VALUES, max_size=12))
def test_every_parameter_gets_a_name_of_its_own_that_mlflow_takes(values: dict[str, Any]) -> None:
    params = flatten(Scenario.make(), Spec("x", {"deep": values}))
    assert len(params) == len(Scenario.model_fields) + 1 + max(1, len(values))
    for name, value in params.items():
        assert len(name) <= MAX_NAME
        _validate_param(name, value)


def test_halves_of_surrogate_pairs_are_spelled_out() -> None:
    assert clip("caf\udce9", 100) == r"caf\udce9"
    assert len(clip("\udce9" * 100, 120)) == 120
    params = flatten(Scenario.make(), Spec("x", {"path": "\udce9"}))
    assert params["controller.path"] == r"\udce9"
