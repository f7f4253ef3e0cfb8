"""What an agent remembers of earlier runs is judged like what a model was fitted to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rudder_eval.contenders import contenders
from rudder_eval.leaks import check_leaks, fitted

from rudder.errors import LeakError
from rudder.home import Home
from rudder.result import MINIBATCH_SCHEMA, RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.steering import build_controller
from rudder.suite import Suite

from .conftest import BASE, run, tiny

SUITE = Suite.of(
    "shifts",
    {
        "base": BASE,
        "scenarios": {
            "plain": {"split": "id_val"},
            "batch": {"split": "ood_batch_size", "batch_size": 20},
            "graph": {"split": "ood_graph", "graph": "rmat:scale=10"},
        },
    },
)
SCENARIOS = {item.name: item.scenario for item in SUITE}
JUDGED = (1000, 1001)


def remembered(
    folder: Path, scenario: Scenario, controller: str | Spec = "always", **details: Any
) -> Path:
    """The directory of a finished run."""
    summary = {"run_id": folder.name}
    table = MINIBATCH_SCHEMA.empty_table()
    RunResult(scenario, Spec.parse(controller), table, [], summary, details).save(folder)
    return folder


def agent(memory: Path) -> str:
    return f'smollm2-135m:shots=4,memory="{memory}"'


def check(home: Home, controller: str, traces: tuple[str, ...] = ()) -> None:
    check_leaks(SUITE, contenders([controller], home, {}), JUDGED, traces)


def test_nothing_is_remembered_by_default(home: Home) -> None:
    [one] = contenders(["smollm2-135m"], home, {})
    agent: Any = build_controller(one.spec)
    assert agent.memory == ""
    assert fitted(one.spec) == []
    check(home, "smollm2-135m")


@pytest.mark.parametrize(
    ("scenario", "told"),
    [
        # At whatever seed, and on the graph under whatever scenario.
        (SCENARIOS["batch"].change(seed=7), r"shifts/batch \(ood_batch_size\): .*trained on it"),
        (Scenario.make(graph="rmat:scale=10"), r"shifts/graph \(ood_graph\): .*its graph rmat"),
        (SCENARIOS["plain"].change(seed=1001), r"shifts/plain \(id_val\): .*at the seeds 1001"),
    ],
    ids=["an OOD scenario", "an OOD graph", "a seed"],
)
def test_a_run_of_what_is_judged_is_refused(
    home: Home, tmp_path: Path, scenario: Scenario, told: str
) -> None:
    memory = remembered(tmp_path / "before", scenario)
    with pytest.raises(LeakError, match=told) as caught:
        check(home, agent(memory))
    assert "model 'memory of before'" in str(caught.value)


def test_a_trace_that_is_judged_is_refused(home: Home, tmp_path: Path) -> None:
    memory = remembered(tmp_path / "before", SCENARIOS["plain"].change(seed=3), trace_id="t1")
    check(home, agent(memory), traces=("t2",))
    with pytest.raises(LeakError, match="trace t1"):
        check(home, agent(memory), traces=("t1",))


def test_runs_in_distribution_at_other_seeds_may_be_remembered(home: Home, tmp_path: Path) -> None:
    check(home, agent(remembered(tmp_path / "before", SCENARIOS["plain"].change(seed=3))))


def test_what_a_remembered_run_had_learned_from_counts(home: Home, tmp_path: Path) -> None:
    first = remembered(tmp_path / "first", SCENARIOS["batch"])
    fine = SCENARIOS["plain"].change(seed=3)
    second = remembered(tmp_path / "second", fine, agent(first))
    with pytest.raises(LeakError, match=r"shifts/batch .*: model 'memory of first'"):
        check(home, agent(second))
    (first / "run.json").rename(tmp_path / "run.json")
    for path in first.iterdir():
        path.unlink()
    first.rmdir()
    with pytest.raises(LeakError, match=r"first; that is not there any more"):
        check(home, agent(second))


def test_a_sweep_is_refused_before_anything_is_run(home: Home, tmp_path: Path) -> None:
    (item,) = tiny("batch")
    memory = remembered(tmp_path / "before", item.scenario)
    with pytest.raises(LeakError, match=r"tiny/batch \(ood_batch_size\)"):
        run(home, ["static", agent(memory)], "batch")
    assert not list(home.sweeps.iterdir())
