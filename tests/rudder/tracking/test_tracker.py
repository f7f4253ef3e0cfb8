"""Runs in a real MLflow store on SQLite."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rudder
from rudder.errors import TrackingError, UsageError
from rudder.home import Home
from rudder.result import MINIBATCH_SCHEMA, SUMMARY_KEYS, RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.tracking import TrackedRun, Tracker
from rudder.tracking.provenance import code_version
from rudder.tracking.sending import sync
from rudder.tracking.store import environment

from .conftest import MakeResult, make_table


def artifact_paths(client: Any, run_id: str, folder: str | None = None) -> set[str]:
    found = set()
    for item in client.list_artifacts(run_id, folder):
        found |= artifact_paths(client, run_id, item.path) if item.is_dir else {item.path}
    return found


def failing(tracked: TrackedRun, logs: Path, error: BaseException) -> TrackedRun:
    """Run a block that raises ``error``; the run as it was left."""
    with contextlib.suppress(type(error)), tracked:
        tracked.attach_logs(logs)
        raise error
    return tracked


def text_of(client: Any, run_id: str, path: str) -> str:
    return Path(client.download_artifacts(run_id, path)).read_text()


def history(client: Any, run_id: str, key: str) -> list[tuple[int, float]]:
    return sorted((m.step, m.value) for m in client.get_metric_history(run_id, key))


def test_a_finished_run(
    tracker: Tracker,
    client: Any,
    scenario: Scenario,
    controller: Spec,
    make_result: MakeResult,
    tmp_path: Path,
) -> None:
    (tmp_path / "logs" / "host1").mkdir(parents=True)
    (tmp_path / "logs" / "host1" / "trainer.log").write_text("epoch 1\n")
    result = make_result(made_up=7, note="text")
    tags = {"rudder.engine": "distdgl", "rudder.split": "id"}
    with tracker.run(scenario, controller, tags, experiment="mine") as tracked:
        assert tracked.run_id is not None
        running = client.get_run(tracked.run_id)
        assert running.info.status == "RUNNING"
        assert running.data.params["controller.interval"] == "16"
        tracked.attach_logs(tmp_path / "logs")
        tracked.finish(result)
    run = client.get_run(tracked.run_id)
    assert run.info.status == "FINISHED"
    assert run.info.end_time >= run.info.start_time
    assert client.get_experiment(run.info.experiment_id).name == "mine"

    assert run.data.params["graph"] == "sbm:nodes=500"
    assert run.data.params["controller"] == "fixed"
    for key, value in {
        "rudder.engine": "distdgl", "rudder.split": "id", "rudder.graph": "sbm",
        "rudder.controller": "fixed:interval=16", "rudder.policy": "score",
        "rudder.version": rudder.__version__, "rudder.commit": code_version(),
        "rudder.local_id": tracked.local_id, "rudder.controller_family": "rule",
    }.items():  # fmt: skip
        assert run.data.tags[key] == value, key
    assert not [tag for tag in run.data.tags if "nonfinite" in tag or "error" in tag]

    for i, key in enumerate(SUMMARY_KEYS):
        if key in ("pass_at_1", "run_id"):
            assert key not in run.data.metrics
        else:
            assert run.data.metrics[key] == i
    assert run.data.metrics["made_up"] == 7
    # Two ranks of make_table: 2 * 10 * s hits of 200, fetched 2 * (100 - 10 s) + 5.
    steps = range(6)
    assert history(client, tracked.run_id, "minibatch/fetched") == [
        (s, 205.0 - 20 * s) for s in steps
    ]
    assert history(client, tracked.run_id, "minibatch/hit_rate") == [
        (s, pytest.approx(s / 10)) for s in steps
    ]
    assert history(client, tracked.run_id, "minibatch/replaced") == [(s, 10.0) for s in steps]
    assert history(client, tracked.run_id, "minibatch/stall_s") == [(s, 0.25) for s in steps]
    assert history(client, tracked.run_id, "minibatch/loss") == [(s, 5.0) for s in steps]

    assert artifact_paths(client, tracked.run_id) == {
        "scenario.json", "controller.json", "run.json", "minibatches.parquet", "decisions.jsonl",
        "figures/hits_and_communication.png", "figures/time_split.png", "logs/host1/trainer.log",
    }  # fmt: skip
    loaded = RunResult.load(Path(client.download_artifacts(tracked.run_id, "")))
    assert loaded.minibatches.equals(result.minibatches)
    assert loaded.summary == result.summary
    assert Scenario.make(**json.loads(text_of(client, tracked.run_id, "scenario.json"))) == scenario
    assert Spec.from_json(text_of(client, tracked.run_id, "controller.json")) == controller
    assert len(text_of(client, tracked.run_id, "decisions.jsonl").splitlines()) == 2
    for figure in ("hits_and_communication", "time_split"):
        path = Path(client.download_artifacts(tracked.run_id, f"figures/{figure}.png"))
        assert path.read_bytes().startswith(b"\x89PNG")
    assert list(tracker.home.outbox.iterdir()) == []


def test_the_experiment_opens_on_its_runs(
    tracker: Tracker, client: Any, scenario: Scenario, controller: Spec, make_result: MakeResult
) -> None:
    with tracker.run(scenario, controller) as tracked:
        tracked.finish(make_result())
    experiment = client.get_experiment_by_name("rudder")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"


def test_the_filters_that_the_readme_shows(
    tracker: Tracker,
    client: Any,
    scenario: Scenario,
    controller: Spec,
    make_result: MakeResult,
    repository: Path,
) -> None:
    text = (repository / "mlflow" / "README.md").read_text().partition("## Single runs")[2]
    filters = re.findall(r"^    ((?:params|tags|attributes)\..*)$", text, re.MULTILINE)
    assert len(filters) == 5
    shown = scenario.change(graph="debian", rate=100.0)
    with tracker.run(shown, controller, {"rudder.engine": "distdgl"}) as tracked:
        tracked.finish(make_result(hit_rate=0.75))
    experiment = client.get_experiment_by_name("rudder").experiment_id
    found = [len(client.search_runs([experiment], each)) for each in filters]
    assert found == [1, 1, 1, 1, 0]  # the last asks for failed runs


def test_a_failed_run_keeps_its_error_and_logs(
    tracker: Tracker, client: Any, scenario: Scenario, controller: Spec, tmp_path: Path
) -> None:
    (tmp_path / "trainer-0.log").write_text("the last words\n")
    error = ValueError("host 3 died\nsee its log")
    tracked = failing(tracker.run(scenario, controller), tmp_path, error)
    run = client.get_run(tracked.run_id)
    assert run.info.status == "FAILED"
    assert run.data.tags["rudder.error"] == "ValueError: host 3 died\nsee its log"
    assert "raise error" in text_of(client, tracked.run_id, "error.txt")
    assert text_of(client, tracked.run_id, "logs/trainer-0.log") == "the last words\n"
    assert "scenario.json" in artifact_paths(client, tracked.run_id)


def test_only_the_end_of_a_huge_log_is_kept(
    tracker: Tracker,
    client: Any,
    scenario: Scenario,
    controller: Spec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rudder.tracking.outbox.LOG_TAIL_BYTES", 10)
    (tmp_path / "a.log").write_text("0123456789the end--\n")
    tracked = failing(tracker.run(scenario, controller), tmp_path, ValueError("x"))
    kept = text_of(client, tracked.run_id, "logs/a.log")
    assert kept == "[the first 10 bytes are left out]\nthe end--\n"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_stopped_run_ends_killed(
    tracker: Tracker,
    client: Any,
    scenario: Scenario,
    controller: Spec,
    stop: type[BaseException],
    tmp_path: Path,
) -> None:
    tracked = failing(tracker.run(scenario, controller), tmp_path / "never made", stop())
    run = client.get_run(tracked.run_id)
    assert run.info.status == "KILLED"
    assert stop.__name__ in run.data.tags["rudder.error"]


def test_a_block_that_forgets_its_result_ends_failed(
    tracker: Tracker, client: Any, scenario: Scenario, controller: Spec
) -> None:
    with pytest.raises(ValueError, match="passes through"), tracker.run(scenario, controller):
        raise ValueError("passes through")
    with tracker.run(scenario, controller) as tracked:
        pass
    assert client.get_run(tracked.run_id).info.status == "FAILED"
    assert "without a result" in client.get_run(tracked.run_id).data.tags["rudder.error"]


def test_a_run_finishes_once(
    tracker: Tracker, client: Any, scenario: Scenario, controller: Spec, make_result: MakeResult
) -> None:
    with tracker.run(scenario, controller) as tracked:
        tracked.finish(make_result())
        with pytest.raises(TrackingError, match="has ended already"):
            tracked.finish(make_result())
    assert client.get_run(tracked.run_id).info.status == "FINISHED"


def test_nan_and_infinity_become_tags(
    tracker: Tracker, client: Any, scenario: Scenario, controller: Spec, make_result: MakeResult
) -> None:
    rows = make_table().to_pylist()
    for row in rows:
        if row["step"] == 2:
            row["loss"] = math.nan
        if row["step"] == 4 and row["rank"] == 1:
            row["loss"] = math.inf
    table = make_table().from_pylist(rows, schema=MINIBATCH_SCHEMA)
    with tracker.run(scenario, controller) as tracked:
        tracked.finish(make_result(table, test_metric=math.nan, imbalance=math.inf))
    run = client.get_run(tracked.run_id)
    assert run.data.tags["rudder.nonfinite.test_metric"] == "nan"
    assert run.data.tags["rudder.nonfinite.imbalance"] == "inf"
    assert run.data.tags["rudder.nonfinite.minibatch/loss"] == "2 of 6: nan at 2, inf at 4"
    assert "test_metric" not in run.data.metrics
    assert [s for s, _ in history(client, tracked.run_id, "minibatch/loss")] == [0, 1, 3, 5]


def test_three_hundred_parameters_long_values_and_odd_names(
    tracker: Tracker, client: Any, scenario: Scenario, make_result: MakeResult
) -> None:
    odd = {"a b": 1, "ü": 2, "x/../y": 3, "n" * 300: 4}
    long = "日本" * 10_000
    given = {**{f"p{i:03d}": i for i in range(300)}, "odd": odd, "prompt": long}
    controller = Spec("made", given)
    with tracker.run(scenario, controller) as tracked:
        tracked.finish(make_result())
    params = client.get_run(tracked.run_id).data.params
    assert len(params) == len(Scenario.model_fields) + 1 + 300 + len(odd) + 1
    assert [params[f"controller.p{i:03d}"] for i in range(300)] == [str(i) for i in range(300)]
    assert params["controller.prompt"].startswith("日本日本")
    whole = Spec.from_json(text_of(client, tracked.run_id, "controller.json"))
    assert whole == controller


def test_more_points_than_one_request_takes(
    tracker: Tracker, client: Any, scenario: Scenario, controller: Spec, make_result: MakeResult
) -> None:
    table = make_table(epochs=1, minibatches=1100, ranks=1)
    with tracker.run(scenario, controller) as tracked:
        tracked.finish(make_result(table))
    stored = client.get_metric_history(tracked.run_id, "minibatch/bytes_ids")
    assert [m.step for m in sorted(stored, key=lambda m: m.step)] == list(range(1100))
    times = [m.timestamp for m in sorted(stored, key=lambda m: m.step)]
    assert times == sorted(times)


def test_a_request_holds_no_more_points_than_mlflow_takes(
    tracker: Tracker,
    scenario: Scenario,
    controller: Spec,
    make_result: MakeResult,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mlflow import MlflowClient

    sizes = []
    log_batch = MlflowClient.log_batch

    def counted(self: Any, run_id: str, metrics: Any = (), **others: Any) -> None:
        sizes.append(len(metrics))
        log_batch(self, run_id, metrics, **others)

    monkeypatch.setattr(MlflowClient, "log_batch", counted)
    with tracker.run(scenario, controller) as tracked:
        tracked.finish(make_result(make_table(epochs=1, minibatches=300, ranks=1)))
    assert sum(sizes) > 3000
    assert max(sizes) == 1000


def test_a_run_without_minibatches(
    tracker: Tracker, client: Any, scenario: Scenario, controller: Spec, make_result: MakeResult
) -> None:
    with tracker.run(scenario, controller) as tracked:
        tracked.finish(make_result(MINIBATCH_SCHEMA.empty_table()))
    assert client.get_run(tracked.run_id).info.status == "FINISHED"


def test_a_store_that_breaks_stops_no_run(
    home: Home,
    scenario: Scenario,
    controller: Spec,
    make_result: MakeResult,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (home.root / "mlflow.db").write_bytes(b"this is no database" * 100)
    with (
        caplog.at_level(logging.WARNING, "rudder"),
        Tracker(home).run(scenario, controller) as tracked,
    ):
        assert tracked.run_id is None
        tracked.finish(make_result())
    assert tracked.problem is not None
    assert [r for r in caplog.records if "rudder sync" in r.getMessage()]
    assert (home.outbox / tracked.local_id / "artifacts" / "run.json").exists()


@pytest.mark.parametrize(
    "uri", ["nonsense", "/tmp/somewhere", "gopher://host/1", "http://host:port", "http://[::1"]
)
def test_a_uri_that_is_none_is_wrong_use(
    home: Home, scenario: Scenario, controller: Spec, uri: str
) -> None:
    with (
        pytest.raises(UsageError, match=re.escape(uri)),
        Tracker(home, uri).run(scenario, controller),
    ):
        pass


def test_a_data_directory_that_sqlite_cannot_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="what"):
        Tracker(Home.resolve(tmp_path / "what?"))


def test_a_relative_file_is_that_of_this_folder(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Tracker(home, "sqlite:///mine.db").store
    monkeypatch.chdir("/")
    assert store.uri == store.shown == f"sqlite:///{tmp_path}/mine.db"
    with pytest.raises(UsageError, match=r"'\?' cannot stand"):
        Tracker(home, "sqlite:////tmp/x.db?timeout=5")


def test_an_error_that_no_store_takes_as_it_is(
    tracker: Tracker, client: Any, scenario: Scenario, controller: Spec, tmp_path: Path
) -> None:
    error = OSError(os.fsdecode(b"no such file: caf\xe9.npy"))
    tracked = failing(tracker.run(scenario, controller), tmp_path, error)
    assert tracked.problem is None
    run = client.get_run(tracked.run_id)
    assert run.data.tags["rudder.error"] == r"OSError: no such file: caf\udce9.npy"


def test_a_password_is_neither_shown_nor_stored(home: Home) -> None:
    store = Tracker(home, "https://me:secret@host.example:8443/path").store
    assert store.shown == "https://me@host.example:8443/path"


def test_usage_statistics_are_off_unless_asked_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; from pathlib import Path; from rudder.home import Home; "
        "from rudder.tracking.store import Store; home = Home(Path(sys.argv[1])); "
        "Store(home).session().__enter__(); "
        "from mlflow.telemetry.utils import is_telemetry_disabled; print(is_telemetry_disabled())"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(home.root)],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "True", done.stderr
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "false")
    assert environment()["MLFLOW_DISABLE_TELEMETRY"] == "false"


def test_a_data_directory_that_is_moved_keeps_its_outbox_and_takes_any_name(
    tmp_path: Path, fresh_store: Path, make_result: MakeResult
) -> None:
    home = Home.resolve(tmp_path / "für 100% #1")
    result = make_result()
    (home.root / "mlflow.db").mkdir()  # nobody can open that
    with Tracker(home).run(result.scenario, result.controller) as tracked:
        tracked.finish(result)
    assert tracked.problem is not None
    (home.root / "mlflow.db").rmdir()
    shutil.copy(fresh_store, home.root / "mlflow.db")
    moved = Home(home.root.rename(tmp_path / "für 100% #2"))
    (row,) = sync(moved)
    assert row["sent"], row["reason"]
    with Tracker(moved).store.session() as client:
        assert "run.json" in artifact_paths(client, row["run_id"])


def test_a_second_attempt_to_pack_starts_anew(
    tracker: Tracker, client: Any, scenario: Scenario, controller: Spec, make_result: MakeResult
) -> None:
    tracked = tracker.run(scenario, controller)
    with pytest.raises(TypeError), tracked:
        tracked.finish(make_result(made_up=object()))  # no JSON
    run = client.get_run(tracked.run_id)
    assert run.info.status == "FAILED"
    assert "TypeError" in run.data.tags["rudder.error"]
    assert "minibatches.parquet" not in artifact_paths(client, tracked.run_id)


def test_importing_the_tracker_is_light() -> None:
    code = (
        "import sys, rudder.tracking, rudder.tracking.commands; "
        "print([m for m in ('mlflow', 'matplotlib', 'torch', 'sqlalchemy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_process_killed_while_it_makes_the_store_leaves_no_half_of_it(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path / "fresh")
    child = os.fork()
    if not child:
        with Tracker(home).store.session():
            os._exit(0)
    deadline = time.monotonic() + 120
    while not any(part.stat().st_size for part in home.root.glob("mlflow.db.*.part")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not (home.root / "mlflow.db").exists()
    assert list(home.root.glob("mlflow.db.*.part"))
    with Tracker(home).store.session() as client:
        assert not list(home.root.glob("mlflow.db.*.part*"))
        assert [e.name for e in client.search_experiments()] == ["Default"]


_EIGHT = """
import os, sys
from pathlib import Path
import matplotlib.figure, mlflow.store.tracking.sqlalchemy_store  # slow, so before they fork
from rudder.home import Home
from rudder.result import RunResult
from rudder.tracking import Tracker
home, result = Home(Path(sys.argv[1])), RunResult.load(Path(sys.argv[2]))
children = []
for _ in range(8):
    child = os.fork()
    if not child:
        with Tracker(home).run(result.scenario, result.controller) as tracked:
            tracked.finish(result)
        os._exit(0 if tracked.problem is None else 1)
    children.append(child)
sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
"""


def test_eight_processes_share_a_fresh_store(tmp_path: Path, make_result: MakeResult) -> None:
    make_result().save(tmp_path / "result")
    home = Home.resolve(tmp_path / "fresh")
    done = subprocess.run(
        [sys.executable, "-I", "-c", _EIGHT, str(home.root), str(tmp_path / "result")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with Tracker(home).store.session() as client:
        names = [e.name for e in client.search_experiments()]
        assert sorted(names) == ["Default", "rudder"]
        runs = client.search_runs([client.get_experiment_by_name("rudder").experiment_id])
    assert len(runs) == 8
    assert {run.info.status for run in runs} == {"FINISHED"}
