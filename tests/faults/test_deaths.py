"""A trainer, a server or a whole host dies: the run ends, and what died is named."""

from __future__ import annotations

import os
import signal

import pytest

from .conftest import IN_TIME, MOMENTS, THRICE, Train

pytestmark = [pytest.mark.cluster, pytest.mark.full]


@THRICE
@MOMENTS
@pytest.mark.parametrize("victim", ["server", "trainer"])
def test_a_role_dies(train: Train, victim: str, moment: str, repeat: int) -> None:
    training = train()
    training.wait_for(moment)
    host = repeat % 2
    os.kill(training.roles(f"host{host}")[victim == "trainer"], signal.SIGKILL)
    told = training.ends(IN_TIME)
    assert told["error"] == "RoleError"
    assert f"{victim} {host} on host{host} (10.91.0.{host + 1}) was killed by" in told["message"]


@THRICE
@MOMENTS
def test_a_host_dies(train: Train, moment: str, repeat: int) -> None:
    training = train()
    training.wait_for(moment)
    host = repeat % 2
    os.kill(training.first_processes()[f"host{host}"], signal.SIGKILL)
    told = training.ends(IN_TIME)
    assert told["error"] == "ClusterError"
    assert f"host{host} (10.91.0.{host + 1}) died" in told["message"]
