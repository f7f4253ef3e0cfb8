"""A link is down for a while, or becomes slow: training waits and goes on, and that can be seen."""

from __future__ import annotations

import time

import pytest

from .conftest import MOMENTS, SOME, THRICE, Train, inside

pytestmark = [pytest.mark.cluster, pytest.mark.full]

DOWN_S = 5.0
SLOW_S = 8.0


@THRICE
@MOMENTS
def test_a_link_is_down_for_5_seconds(train: Train, moment: str, repeat: int) -> None:
    training = train(epochs=SOME)
    training.wait_for(moment)
    world = training.first_processes()["world"]
    inside(world, "link", "v1", "down")
    time.sleep(DOWN_S)
    inside(world, "link", "v1", "up")
    training.goes_on()
    if moment == "mid-epoch":
        # Counted where it was felt: whatever needed the link took that long.
        troubled = training.result().details["trouble_of_links"]
        assert sum(rank["stalled"] for rank in troubled) >= 1
        assert max(rank["stalled_s"] for rank in troubled) > DOWN_S - 1


@THRICE
@MOMENTS
def test_a_link_becomes_slow(train: Train, moment: str, repeat: int) -> None:
    # From the start: all of a short run is slow. Later: a while of one that outlasts it.
    training = train(epochs=SOME // 10 if moment == "start-up" else SOME)
    training.wait_for(moment)
    world = training.first_processes()["world"]
    inside(world, "rate", "v1", "4")
    if moment == "mid-epoch":
        time.sleep(SLOW_S)
        inside(world, "rate", "v1", "10000")
    training.goes_on()
    result = training.result()
    assert sum(result.minibatches.column("fetch_s").to_pylist()) > 1.0
    if moment == "mid-epoch":  # one that is slow from the start is just slow
        troubled = result.details["trouble_of_links"]
        assert sum(rank["slow"] + rank["stalled"] for rank in troubled) >= 1
