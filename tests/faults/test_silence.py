"""A host stops answering and closes nothing: only time can tell, and it does."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import pytest

from rudder.distdgl.hosting import DEADLINES, SILENCE_S

from .conftest import HERE, IN_TIME, MOMENTS, THRICE, Train, Training, inside

pytestmark = [pytest.mark.cluster, pytest.mark.full]

SHORTER = 4
"""As in ``short_driver.py``."""
START_S = max(deadline.seconds for deadline in DEADLINES)


def stopped(training: Training) -> None:
    for pid in training.everybody("host1"):
        os.kill(pid, signal.SIGSTOP)


def unplugged(training: Training) -> None:
    inside(training.first_processes()["world"], "link", "v1", "down")


@THRICE
@MOMENTS
@pytest.mark.parametrize("fault", [stopped, unplugged])
def test_a_host_says_nothing_any_more(
    train: Train, fault: Callable[[Training], None], moment: str, repeat: int
) -> None:
    training = train(before=(sys.executable, "-I", str(HERE / "short_driver.py")))
    training.wait_for(moment)
    fault(training)
    limit = SILENCE_S if moment == "mid-epoch" else START_S
    # Then the hosts are cleaned, and one that is stopped does not answer to that either.
    told = training.ends(limit / SHORTER + 4 * IN_TIME)
    assert told["error"] == "RoleError"
    assert "trainer 1 on host1 (10.91.0.2)" in told["message"]
    assert ("host1 has not answered" in told["message"]) == (fault is stopped)
