"""Sweeps on tiny generated graphs: what is run, once, paired, and what fails."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest
from rudder_eval.cells import Cell, control_name
from rudder_eval.headroom import CONSTANTS
from rudder_eval.runner import Outcome
from rudder_eval.sweep import CELLS, Sweep

from rudder.errors import LeakError, SweepError, UsageError
from rudder.home import Home
from rudder.model import MANIFEST_FILE, Column, ModelManifest, Support, Training
from rudder.plugins import PluginFile
from rudder.result import RunResult

from .conftest import run, tiny


def asked(outcome: Outcome) -> list[Cell]:
    names = [one["name"] for one in outcome.sweep.head["controllers"]]
    return [c for c in outcome.cells if c.controller in names]


def finished_once(sweep: Sweep) -> bool:
    lines = (sweep.folder / CELLS).read_text().splitlines()
    ended = Counter(c["cell"] for c in map(json.loads, lines) if c["status"] == "finished")
    return set(ended.values()) == {1}


def test_controllers_times_scenarios_times_seeds(home: Home) -> None:
    outcome = run(home, ["none", "always", "fixed:interval=3", "timing-oracle"])
    cells = asked(outcome)
    assert len(cells) == 4 * 3 * 2
    assert {(c.controller, c.scenario, c.seed) for c in cells} == {
        (controller, scenario, seed)
        for controller in ("none", "always", "fixed:interval=3", "timing-oracle")
        for scenario in ("plain", "large", "batch")
        for seed in (1000, 1001)
    }
    assert {c.family for c in cells} == {"baseline", "heuristic", "oracle"}
    assert {(c.split, c.axis) for c in cells} == {
        ("id_val", ""), ("ood_buffer", "buffer"), ("ood_batch_size", "batch_size"),
    }  # fmt: skip
    # 'always' and the oracle are run for headroom too: once.
    assert len(outcome.cells) - len(cells) == 3 * 2 * (len(CONSTANTS) - 1)
    assert len({c.run_id for c in outcome.cells}) == len(outcome.cells)
    for cell in cells:
        result = RunResult.load(home.root / cell.run_dir)
        assert result.summary["fetched"] == cell.value("fetched")
        assert result.scenario.seed == cell.seed
        if cell.controller == "timing-oracle":
            assert cell.value("regret_to_timing_oracle") == 1.0


def test_paired_on_one_trace_and_bounded_by_its_schedules(home: Home) -> None:
    outcome = run(home, ["none", "static"])
    for scenario in ("plain", "large", "batch"):
        for seed in (1000, 1001):
            own = [c for c in outcome.cells if (c.scenario, c.seed) == (scenario, seed)]
            traces = {
                RunResult.load(home.root / c.run_dir).details["trace_id"] for c in own
            }  # fmt: skip
            assert len(traces) == 1
            assert len({c.value("remote_sampled") for c in own}) == 1
            constants = {c.controller: c for c in own if c.family == "constant"}
            assert set(constants) == set(CONSTANTS)
            (oracle,) = (c for c in own if c.family == "oracle")
            best = min(c.value("fetched") or 0 for c in constants.values())
            for cell in own:
                assert cell.value("best_constant") == best
                assert cell.value("headroom") == pytest.approx(
                    best / (oracle.value("fetched") or 0) - 1
                )
                regret = (cell.value("fetched") or 0) / (oracle.value("fetched") or 0)
                assert cell.value("regret_to_timing_oracle") == (
                    None if cell.controller == "none" else pytest.approx(regret)
                )
                assert (cell.value("regret") is None) == (cell.controller == "none")


def test_asked_again_nothing_is_run_and_a_changed_spec_is_a_new_cell(home: Home) -> None:
    first = run(home, ["static", "fixed:interval=3"])
    again = run(home, ["static", "fixed:interval=3"])
    assert (first.run_now, again.run_now) == (len(first.cells), 0)
    assert again.cells == first.cells
    changed = run(home, ["static", "fixed:interval=5"])
    assert changed.run_now == 3 * 2
    kept = {c.cell: c.run_id for c in first.cells if c.controller != "fixed:interval=3"}
    assert {c.cell: c.run_id for c in changed.cells if c.cell in kept} == kept
    assert not any(c.controller == "fixed:interval=3" for c in changed.cells)
    assert run(home, ["static", "fixed:interval=3"]).run_now == 0  # it is still there
    more = run(home, ["static"], seeds=3)
    assert more.run_now == 3 * (1 + len(CONSTANTS) + 1)
    named = run(home, ["static", "fixed:interval=4"])  # run for headroom, now asked for
    assert named.run_now == 0
    assert sum(c.controller == "fixed:interval=4" for c in named.cells) == 3 * 2


def test_another_suite_or_engine_under_one_name_is_refused(home: Home) -> None:
    run(home, ["static"], "plain", seeds=1, name="mine")
    with pytest.raises(UsageError, match=r"mine was made of engine replay.*--name"):
        run(home, ["static"], "plain", seeds=1, name="mine", engine="distdgl")
    with pytest.raises(UsageError, match="cannot be named"):
        run(home, ["static"], "plain", name="../mine")


def test_two_at_one_sweep(home: Home) -> None:
    from rudder_eval.sweep import alone

    with alone(home, "tiny"), pytest.raises(SweepError, match="another process works at"):
        run(home, ["static"], "plain")


def test_a_crash_fails_its_cell_alone(home: Home, plugin: PluginFile) -> None:
    outcome = run(home, ["no-start", "raising", "static"], plugins=[plugin])
    failed = {(c.controller, c.scenario) for c in asked(outcome) if not c.finished}
    assert failed == {("no-start", "batch")} | {("raising", s) for s in tiny().names}
    assert sum(c.finished for c in asked(outcome)) == 2 * (2 + 0 + 3)
    errors = {c.controller: str(c.error) for c in outcome.cells if not c.finished}
    assert "no such batch size here" in errors["no-start"]
    assert "every answer" in errors["raising"]
    assert "ValueError: out of ideas" in errors["raising"]
    again = run(home, ["no-start", "raising", "static"], plugins=[plugin])
    assert again.run_now == 2 * (1 + 3)  # what failed is tried again


def test_a_controller_that_takes_its_process_along(home: Home, plugin: PluginFile) -> None:
    outcome = run(home, ["static", "dying", "none"], plugins=[plugin])
    cells = asked(outcome)
    assert len(cells) == 3 * 3 * 2
    assert {(c.controller, c.seed) for c in cells if not c.finished} == {("dying", 1001)}
    for cell in cells:
        if not cell.finished:
            assert "died (exit code 9)" in str(cell.error)
    assert finished_once(outcome.sweep)


def test_controls_stand_beside_what_is_learned(home: Home, plugin: PluginFile) -> None:
    outcome = run(home, ["agent", "static"], plugins=[plugin])
    controls = [c for c in outcome.cells if c.family == "control"]
    assert {c.controller for c in controls} == {
        control_name("rate", "agent"), control_name("shuffled", "agent"),
    }  # fmt: skip
    assert len(controls) == 2 * 3 * 2
    by_place = {(c.scenario, c.seed): c for c in outcome.cells if c.controller == "agent"}
    for control in controls:
        own = by_place[control.scenario, control.seed]
        if control.controller == control_name("rate", "agent"):
            assert control.spec["params"]["p"] == own.value("replace_share")
        else:  # the same answers, in another order
            assert control.value("replace_share") == own.value("replace_share")
    assert run(home, ["agent", "static"], plugins=[plugin]).run_now == 0
    without = run(home, ["agent"], plugins=[plugin], controls=False, name="without")
    assert not any(c.family == "control" for c in without.cells)


def training(scenario: str, seeds: tuple[int, ...]) -> Training:
    (item,) = tiny(scenario)
    return Training(
        suite="other", suite_digest="0", scenarios={"seen": item.scenario.digest()},
        graphs=(item.scenario.graph,), traces=(), seeds=seeds, collection="0", label="paper",
        examples={},
    )  # fmt: skip


def model(folder: Path, seen: Training) -> Path:
    """A model's directory without weights: enough to be judged by what it has seen."""
    support = Support(
        low=(0.0,), high=(1.0,), centre=(0.5,), scale=(1.0,), precision=((1.0,),), limit=9.0
    )
    folder.mkdir()
    ModelManifest(
        name="mine", estimator={"name": "logistic", "params": {}}, observation_schema=1,
        columns=(Column(name="hit_rate", unit="share"),), files={}, support=support, training=seen,
    ).write(folder)  # fmt: skip
    return folder


def test_a_leak_is_refused_before_anything_is_run(
    home: Home, plugin: PluginFile, tmp_path: Path
) -> None:
    leaked = model(tmp_path / "leaked", training("batch", (0, 1)))
    with pytest.raises(LeakError, match=r"tiny/batch \(ood_batch_size\).*was trained on it"):
        run(home, ["static", f"fitted:model={leaked}"], plugins=[plugin])
    assert not list(home.sweeps.iterdir())
    seed = model(tmp_path / "seed", training("plain", (0, 1001)))
    with pytest.raises(LeakError, match=r"tiny/plain \(id_val\).*at the seeds 1001"):
        run(home, [f"fitted:model={seed}"], plugins=[plugin])
    fine = model(tmp_path / "fine", training("plain", (0, 1)))
    assert run(home, [f"fitted:model={fine}"], "plain", seeds=1, plugins=[plugin]).run_now
    assert (fine / MANIFEST_FILE).is_file()


def test_a_memory_leaks_like_a_model(home: Home, plugin: PluginFile) -> None:
    before = run(home, ["agent"], "batch", seeds=1, plugins=[plugin], name="before")
    (own,) = (c for c in before.cells if c.controller == "agent")
    memory = home.root / own.run_dir
    with pytest.raises(LeakError, match=r"memory of .*was trained on it"):
        run(home, [f"agent:memory={memory}"], "batch", plugins=[plugin])


def test_wrong_use(home: Home) -> None:
    for controllers, told in {
        ("statik",): "did you mean 'static'",
        ("fixed", "fixed:interval=16"): "is the controller 'fixed' again",
        (): "no controllers to compare",
        ("shuffled:run=nowhere",): "is neither .*nowhere",
    }.items():
        with pytest.raises(UsageError, match=told):
            run(home, list(controllers))
    with pytest.raises(UsageError, match=r"scenario 'plain'.*recorded trace"):
        run(home, ["timing-oracle"], "plain", engine="distdgl")


def test_signals_have_names() -> None:
    from rudder.parallel import exit_words

    assert exit_words(-signal.SIGKILL) == "SIGKILL"
    assert exit_words(3) == "exit code 3"
