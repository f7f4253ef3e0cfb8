"""A real MLflow server, that is there, goes away, comes back, or never was."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rudder.errors import UsageError
from rudder.home import Home
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.tracking import Tracker, commands
from rudder.tracking.outbox import Package, pending
from rudder.tracking.sending import sync
from rudder.tracking.store import Store, exclusive

from .conftest import MakeResult, Server, free_port

SECONDS = 15
"""What an absent server may cost a run at most, generously for a busy machine."""


class Gate:
    """An address through which the server is reached, and that can be shut: then nobody answers."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._port = free_port()
        self._listener: socket.socket | None = None
        self.uri = f"http://127.0.0.1:{self._port}"

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self._port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        assert self._listener is not None
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # shut
            while True:
                inner, _ = listener.accept()
                outer = socket.create_connection(("127.0.0.1", self._server.port))
                for ends in ((inner, outer), (outer, inner)):
                    threading.Thread(target=_pump, args=ends, daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other direction has ended
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def gate(server: Server) -> Gate:
    """A way to the server that is still shut."""
    return Gate(server)


@pytest.fixture
def remote(server: Server, home: Home) -> Any:
    with Store(home, server.uri).session() as client:
        return client


def runs_of(client: Any, local_id: str) -> list[Any]:
    experiments = [e.experiment_id for e in client.search_experiments()]
    return list(client.search_runs(experiments, f"tags.`rudder.local_id` = '{local_id}'"))


def steps_of(client: Any, run_id: str, key: str = "minibatch/fetched") -> list[int]:
    return sorted(metric.step for metric in client.get_metric_history(run_id, key))


def kept_run(home: Home, uri: str, result: Any) -> str:
    """A run that ended while nothing answered at ``uri``; its local id."""
    with Tracker(home, uri).run(result.scenario, result.controller) as tracked:
        assert tracked.run_id is None
        tracked.finish(result)
    return tracked.local_id


def test_a_run_on_a_server(
    server: Server,
    home: Home,
    remote: Any,
    scenario: Scenario,
    controller: Spec,
    make_result: MakeResult,
    tmp_path: Path,
) -> None:
    with Tracker(home, server.uri).run(scenario, controller) as tracked:
        tracked.finish(make_result())
    assert tracked.run_id is not None
    assert tracked.problem is None
    run = remote.get_run(tracked.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["controller.interval"] == "16"
    assert steps_of(remote, tracked.run_id) == list(range(6))
    assert {a.path for a in remote.list_artifacts(tracked.run_id)} == {
        "scenario.json", "controller.json", "run.json", "minibatches.parquet", "decisions.jsonl",
        "figures",
    }  # fmt: skip
    folder = remote.download_artifacts(tracked.run_id, "figures", str(tmp_path))
    assert {p.name for p in Path(folder).iterdir()} == {
        "hits_and_communication.png", "time_split.png",
    }  # fmt: skip
    experiment = remote.get_experiment(run.info.experiment_id)
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    assert not (home.root / "mlflow-artifacts").exists() or not list(
        home.mlflow_artifacts.iterdir()
    )


def test_a_server_that_goes_away_fails_no_run_and_gets_it_later_once(
    gate: Gate, home: Home, scenario: Scenario, controller: Spec, make_result: MakeResult
) -> None:
    gate.open()
    with Tracker(home, gate.uri).run(scenario, controller) as tracked:
        started_as = tracked.run_id
        gate.shut()
        before = time.monotonic()
        tracked.finish(make_result())
        assert time.monotonic() - before < SECONDS
    assert tracked.problem is not None
    assert "no MLflow store answers" in tracked.problem

    before = time.monotonic()
    (row,) = sync(home)
    assert time.monotonic() - before < SECONDS
    assert row["sent"] is False
    assert row["run_id"] is None
    assert gate.uri in row["reason"]

    gate.open()
    (row,) = sync(home)
    assert (row["sent"], row["run_id"], row["reason"]) == (True, started_as, None)
    assert sync(home) == []
    assert list(home.outbox.iterdir()) == []
    with Store(home, gate.uri).session() as client:
        (run,) = runs_of(client, tracked.local_id)
        assert run.info.run_id == started_as
        assert run.info.status == "FINISHED"
        assert steps_of(client, run.info.run_id) == list(range(6))


def test_a_server_that_never_was(
    home: Home,
    server: Server,
    remote: Any,
    make_result: MakeResult,
) -> None:
    absent = f"http://127.0.0.1:{free_port()}"
    before = time.monotonic()
    local_id = kept_run(home, absent, make_result())
    assert time.monotonic() - before < SECONDS
    record = json.loads((home.outbox / local_id / "record.json").read_text())
    (row,) = sync(home, server.uri)
    assert row["sent"] is True
    (run,) = runs_of(remote, local_id)
    assert run.info.start_time == record["start_ms"]
    assert run.info.end_time == record["end_ms"]
    assert run.info.run_name == "sbm:nodes=500 fixed:interval=16"


def test_a_database_server_that_is_absent_costs_seconds(
    home: Home, make_result: MakeResult
) -> None:
    before = time.monotonic()
    kept_run(home, f"postgresql://me:secret@127.0.0.1:{free_port()}/mlflow", make_result())
    assert time.monotonic() - before < SECONDS


def test_a_host_that_swallows_everything_costs_seconds(home: Home, make_result: MakeResult) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        before = time.monotonic()
        kept_run(home, f"http://127.0.0.1:{silent.getsockname()[1]}", make_result())
        assert time.monotonic() - before < SECONDS


def test_something_that_speaks_no_http(home: Home, make_result: MakeResult) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if not child:
            while True:
                connection, _ = listener.accept()
                connection.recv(1)
                connection.sendall(b"SSH-2.0-none\r\n")
                connection.close()
        try:
            kept_run(home, f"http://127.0.0.1:{listener.getsockname()[1]}", make_result())
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_a_server_that_comes_up_during_a_run(
    gate: Gate, home: Home, scenario: Scenario, controller: Spec, make_result: MakeResult
) -> None:
    with Tracker(home, gate.uri).run(scenario, controller) as tracked:
        assert tracked.run_id is None
        gate.open()
        tracked.finish(make_result())
    assert tracked.problem is None
    assert tracked.run_id is not None
    assert list(home.outbox.iterdir()) == []


@pytest.mark.parametrize("at", ["rudder.tracking.sending._log_tags", "discard"])
def test_a_sync_that_dies_midway_is_repeated_without_duplicates(
    server: Server,
    home: Home,
    remote: Any,
    make_result: MakeResult,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
) -> None:
    local_id = kept_run(home, f"http://127.0.0.1:{free_port()}", make_result())

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if at == "discard":
            patch.setattr(Package, "discard", die)
        else:
            patch.setattr(at, die)
        with pytest.raises(KeyboardInterrupt):
            sync(home, server.uri)
    (half,) = runs_of(remote, local_id)
    (row,) = sync(home, server.uri)
    assert row["run_id"] == half.info.run_id
    (run,) = runs_of(remote, local_id)
    assert run.info.status == "FINISHED"
    assert steps_of(remote, run.info.run_id) == list(range(6))
    assert len(remote.get_metric_history(run.info.run_id, "hits")) == 1


def test_a_failed_run_is_sent_later_with_its_log(
    server: Server, home: Home, remote: Any, scenario: Scenario, controller: Spec, tmp_path: Path
) -> None:
    (tmp_path / "server-2.log").write_text("out of memory\n")
    tracked = Tracker(home, f"http://127.0.0.1:{free_port()}").run(scenario, controller)
    with pytest.raises(RuntimeError), tracked:  # noqa: PT012
        tracked.attach_logs(tmp_path)
        raise RuntimeError("host 2 died")
    (tmp_path / "server-2.log").unlink()
    (row,) = sync(home, server.uri)
    run = remote.get_run(row["run_id"])
    assert run.info.status == "FAILED"
    assert run.data.tags["rudder.error"] == "RuntimeError: host 2 died"
    log = remote.download_artifacts(row["run_id"], "logs/server-2.log", str(tmp_path))
    assert Path(log).read_text() == "out of memory\n"


def test_two_syncs_at_once_send_a_run_once(
    server: Server, home: Home, remote: Any, make_result: MakeResult
) -> None:
    local_id = kept_run(home, f"http://127.0.0.1:{free_port()}", make_result())
    folder = home.outbox / local_id
    child = os.fork()
    if not child:
        rows = sync(home, server.uri)
        os._exit(0 if all(row["sent"] for row in rows) else 1)
    rows = sync(home, server.uri)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(row["sent"] for row in rows)
    assert len(runs_of(remote, local_id)) == 1
    assert not folder.exists()


def test_the_sync_command(
    home: Home, server: Server, make_result: MakeResult, capsys: pytest.CaptureFixture[str]
) -> None:
    local_id = kept_run(home, f"http://127.0.0.1:{free_port()}", make_result())
    assert commands.sync(home=home.root, as_json=True) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["sent"]) == (local_id, False)
    assert commands.sync(server.uri, home=home.root) == 0
    assert "sbm:nodes=500 fixed:interval=16" in capsys.readouterr().out
    assert commands.sync(home=home.root, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert commands.sync(home=home.root) == 0
    assert "Nothing to send" in capsys.readouterr().err


def damage(folder: Path, how: str) -> None:
    record = folder / "record.json"
    if how == "no record":
        record.unlink()
    elif how == "cut":
        record.write_bytes(record.read_bytes()[:-20])
    elif how == "no result":
        (folder / "artifacts" / "run.json").unlink()
    elif how == "cut result":
        table = folder / "artifacts" / "minibatches.parquet"
        table.write_bytes(table.read_bytes()[:-20])
    elif how.startswith("no uri"):
        data = json.loads(record.read_text())
        record.write_text(json.dumps({**data, "uri": how}))
    elif how == "params":
        data = json.loads(record.read_text())
        record.write_text(json.dumps({**data, "params": [1]}))
    else:
        record.write_text(how)


@pytest.mark.parametrize(
    "how",
    ["no record", "cut", "no result", "cut result", "no uri", "params", "{}", "[]", '"x"', "5",
     '{"version": 9}'],
)  # fmt: skip
def test_a_damaged_run_is_named_and_stays_and_the_others_are_sent(
    home: Home, make_result: MakeResult, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    result = make_result()
    absent = f"http://127.0.0.1:{free_port()}"
    good, bad = (kept_run(home, absent, result) for _ in range(2))
    damage(home.outbox / bad, how)
    uri = None if how == "no uri" else home.mlflow_uri
    assert commands.sync(uri, home=home.root, as_json=True) == 1
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {good, bad}
    assert rows[good]["sent"] == (uri is not None)
    assert rows[bad]["sent"] is False
    assert rows[bad]["run_id"] is None
    assert str(home.outbox / bad) in rows[bad]["reason"] or "no uri" in rows[bad]["reason"]
    assert (home.outbox / bad / "artifacts").is_dir()
    with Store(home).session() as client:
        assert runs_of(client, bad) == []


def test_a_uri_that_is_none_is_wrong_use_of_sync(home: Home) -> None:
    with pytest.raises(UsageError, match="nonsense"):
        sync(home, "nonsense")


def test_a_folder_that_is_swept_up_twice_is_no_error(
    home: Home, make_result: MakeResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_run(home, f"http://127.0.0.1:{free_port()}", make_result())
    (package,) = pending(home)
    assert isinstance(package, Package)
    rename = Path.rename

    def rename_and_lose(self: Path, target: Path) -> Path:
        moved = rename(self, target)
        assert pending(home) == []  # another process sweeps up just now
        assert not moved.exists()
        return moved

    monkeypatch.setattr(Path, "rename", rename_and_lose)
    package.discard()
    assert list(home.outbox.iterdir()) == []


class Strange(http.server.BaseHTTPRequestHandler):
    """Answers everything with the same status and body: no MLflow."""

    server: StrangeServer

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        del format, args  # keep the test's output clean


class StrangeServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    status = 200
    body = b""


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b"broken"), (404, b"{}"), (401, b""), (200, b"<html>"), (200, b"{}"), (200, b"[]"),
     (200, b'"x"'), (200, b"null")],
)  # fmt: skip
def test_a_server_that_is_no_mlflow_stops_no_run_and_gets_none(
    home: Home, make_result: MakeResult, status: int, body: bytes
) -> None:
    with StrangeServer(("127.0.0.1", 0), Strange) as strange:
        strange.status, strange.body = status, body
        threading.Thread(target=strange.serve_forever, args=(0.01,), daemon=True).start()
        uri = f"http://me@127.0.0.1:{strange.server_address[1]}"
        result = make_result()
        with Tracker(home, uri.replace("me", "me:secret")).run(
            result.scenario, result.controller
        ) as tracked:
            tracked.finish(result)
        strange.shutdown()
    assert tracked.problem is not None
    assert f"{uri} failed" in tracked.problem or "experiment" in tracked.problem
    assert (home.outbox / tracked.local_id / "record.json").exists()


def test_an_artifact_store_whose_library_is_missing_stops_no_run(
    home: Home, make_result: MakeResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    def missing(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'boto3'")

    result = make_result()
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_artifacts", missing)
        with Tracker(home).run(result.scenario, result.controller) as tracked:
            tracked.finish(result)
    assert tracked.problem is not None
    assert "boto3" in tracked.problem
    (row,) = sync(home)
    assert row["sent"]


def test_a_host_name_that_is_none_is_told(home: Home, make_result: MakeResult) -> None:
    kept_run(home, "http://mlflow..example.org:5000", make_result())


def test_a_held_lock_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rudder.tracking.store.LOCK_TIMEOUT_S", 0.1)
    with (
        exclusive(tmp_path / "lock"),
        pytest.raises(Exception, match="another process has held"),
        exclusive(tmp_path / "lock"),
    ):
        pass
