"""Specs: text and JSON round-trip, and what does not parse says why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rudder.errors import SpecError
from rudder.spec import Spec

names = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["1", "true", "null", "NaN", "Infinity", '"', "\\", '\\"', "a,b", " a", "["]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
specs = st.builds(Spec, names, st.dictionaries(names, values, max_size=4))


@given(specs)
def test_text_round_trips(spec: Spec) -> None:
    assert Spec.parse(str(spec)) == spec


@given(specs)
def test_json_round_trips(spec: Spec) -> None:
    back = Spec.from_json(spec.to_json())
    assert back == spec
    assert hash(back) == hash(spec)


@given(st.text(max_size=40))
def test_any_text_parses_or_is_a_spec_error(text: str) -> None:
    try:
        spec = Spec.parse(text)
    except SpecError:
        return
    assert Spec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("c", {}),
        ("c:interval=16", {"interval": 16}),
        ("c:p=0.5,on=true,off=null", {"p": 0.5, "on": True, "off": None}),
        ("c:layers=[1,2],path=/a/b:c", {"layers": [1, 2], "path": "/a/b:c"}),
        ('c:say="a,b"', {"say": "a,b"}),
        (r'c:say="a\",b",n=1', {"say": 'a",b', "n": 1}),
        ("c:say=it's,n=1", {"say": "it's", "n": 1}),
        ("c:empty=", {"empty": ""}),
        ("  c: a = 1 , b = x y ", {"a": 1, "b": "x y"}),
        ("c:x=NaN", {"x": "NaN"}),
        ("c:inner=score:alpha=1", {"inner": "score:alpha=1"}),
    ],
)
def test_text_forms(text: str, params: dict[str, object]) -> None:
    assert Spec.parse(text) == Spec("c", params)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no name"),
        (":a=1", "no name"),
        ("c:", "not key=value"),
        ("c:a", "not key=value"),
        ("c:a=1,", "not key=value"),
        ("c:=1", "needs a name"),
        ("c:a=1,a=2", "given twice"),
        ("c:a=[1,2", "not closed"),
        ('c:a="x', "not closed"),
        ("two words", "cannot be named"),
        ("c:a=1e999", "JSON values"),
    ],
)
def test_what_does_not_parse_says_why(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Spec.parse(text)


def test_values_that_are_no_json_are_refused() -> None:
    for value in (print, object(), float("nan"), {1, 2}):
        with pytest.raises(SpecError, match="JSON values"):
            Spec("c", {"x": value})


def test_mappings_are_checked() -> None:
    assert Spec.parse({"name": "c", "params": {"a": 1}}) == Spec("c", {"a": 1})
    for wrong in ({}, {"name": "c", "parms": {}}, {"name": "c", "params": 3}, {"name": 3}):
        with pytest.raises(SpecError):
            Spec.parse(wrong)
    for wrong_json in ("[1]", "3", "{", '{"name": "a b"}'):
        with pytest.raises(SpecError):
            Spec.from_json(wrong_json)


def test_equality_is_that_of_the_hash() -> None:
    assert Spec("c", {"a": 1}) != Spec("c", {"a": 1.0})
    assert Spec("c", {"a": 1}) != Spec("c", {"a": True})
    assert Spec("c", {"a": 1, "b": 2}) == Spec("c", {"b": 2, "a": 1})
    assert Spec("c") != "c"


def test_it_does_not_change_with_the_callers_dict() -> None:
    params = {"layers": [1]}
    spec = Spec("c", params)
    params["layers"].append(2)
    assert spec == Spec("c", {"layers": [1]})


def test_defaults_go_under_what_is_given() -> None:
    assert Spec("c", {"a": 1}).with_defaults({"a": 0, "b": 2}) == Spec("c", {"a": 1, "b": 2})
