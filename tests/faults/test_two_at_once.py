"""Two runs at once on one machine, of one graph and in one data directory, with equal addresses."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ..conftest import Traces
from .conftest import IN_TIME, SOME, Train, Training

pytestmark = [pytest.mark.cluster, pytest.mark.full]


@pytest.fixture
def both(train: Train, traces: Traces, tmp_path: Path) -> list[Training]:
    """Two runs that train; the second began while the first was starting."""
    first = train(home=tmp_path, epochs=SOME)
    first.until(lambda: first.run_dir() is not None)
    second = train(home=tmp_path, epochs=SOME, traces=Traces())
    for each in (first, second):
        each.wait_for("mid-epoch")
    return [first, second]


def test_neither_knows_of_the_other(both: list[Training]) -> None:
    told = [training.goes_on() for training in both]
    assert told[0]["run_id"] != told[1]["run_id"]
    for training, said in zip(both, told, strict=True):
        result = training.result()
        assert result.summary["run_id"] == said["run_id"]
        hits, misses = said["hits"], said["misses"]
        assert hits + misses == said["remote_sampled"] > 0
    # Sampling draws at random: what two runs of one scenario fetch differs by little.
    assert told[0]["remote_sampled"] == pytest.approx(told[1]["remote_sampled"], rel=0.02)


@pytest.mark.parametrize("victim", [0, 1])
def test_the_death_of_one_leaves_the_other(both: list[Training], victim: int) -> None:
    dies, lives = both[victim], both[1 - victim]
    os.kill(dies.roles("host1")[1], signal.SIGKILL)
    assert "trainer 1 on host1" in dies.ends(IN_TIME)["message"]
    lives.goes_on()
