"""A sweep on the real engine: hosts, servers, trainers, one run after the other."""

from __future__ import annotations

from rudder_eval.cells import Cell
from rudder_eval.requests import Watch

from rudder.home import Home
from rudder.result import RunResult

from .conftest import run


def test_two_controllers_in_real_training(home: Home) -> None:
    begun: list[str] = []
    ended: list[Cell] = []
    watch = Watch(begun=lambda cell: begun.append(cell.controller) if cell.tracked else None,
                  done=lambda cell, now: ended.append(cell))  # fmt: skip
    outcome = run(
        home, ["static", "always"], "plain", seeds=1, engine="distdgl", track=True, watch=watch
    )
    assert outcome.sweep.name == "tiny-distdgl"
    real = [c for c in outcome.cells if c.engine == "distdgl"]
    assert begun == ["static", "always"]
    assert [c.controller for c in real] == begun
    assert all(c.finished and c.mlflow_run_id for c in real)
    for cell in real:
        result = RunResult.load(home.root / cell.run_dir)
        assert result.details["host_counters"]
        assert cell.value("fetched") == result.summary["fetched"]
        assert cell.value("headroom") is not None  # of a replay of the same scenario and seed
        assert cell.value("regret_to_timing_oracle") is None
        assert list((home.root / cell.run_dir / "logs").glob("trainer-*.log"))
    assert {c.engine for c in outcome.cells if c not in real} == {"replay"}
    again = run(home, ["static", "always"], "plain", seeds=1, engine="distdgl", track=True)
    assert again.run_now == 0
    assert again.parent == outcome.parent
