"""Exploring schedules: defaults spelled out, and controllers that cannot be one."""

from __future__ import annotations

import pytest
from rudder_training_ml.schedules import DEFAULT, spelled_out

from rudder.errors import SpecError, UnknownNameError, UsageError
from rudder.spec import Spec


def test_defaults_are_spelled_out() -> None:
    assert spelled_out(["fixed", "random:p=0.2"]) == ("fixed:interval=16", "random:p=0.2")
    assert spelled_out(["always:latency_s=0.1"]) == ("always:latency_s=0.1",)


def test_the_usual_ones_explore() -> None:
    specs = [Spec.parse(text) for text in spelled_out(DEFAULT)]
    assert {"random", "fixed", "threshold", "always"} == {spec.name for spec in specs}
    # A real run is steered by the first: each of its answers has a known probability.
    assert specs[0].name == "random"
    assert 0 < specs[0].params["p"] < 1


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ([], UsageError, "no schedule"),
        (["fixed", "fixed:interval=16"], UsageError, "'fixed:interval=16' is given twice"),
        (["massivegnn"], UsageError, "'massivegnn' fixes policy"),
        (["none"], UsageError, "'none' fixes buffer"),
        (["nonsense"], UnknownNameError, "nonsense"),
        (["random:q=1"], SpecError, "no parameter 'q'"),
        (["random:p=3"], SpecError, "p must lie in 0..1"),
    ],
)
def test_what_is_refused(given: list[str], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        spelled_out(given)
