"""The clock of replays: what makes cells of another clock other cells."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rudder_eval import machines


def test_another_clock_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machines.bundled()
    found = machines.digest_of(machine)
    assert machines.digest_of(replace(machine, source={"run_id": "another"})) == found
    assert machines.digest_of(replace(machine, latency_s=machine.latency_s + 1e-3)) != found
    monkeypatch.setattr(machines, "EQUATIONS", machines.EQUATIONS + 1)
    assert machines.digest_of(machine) != found
