"""The key of a server is sent to that server, and reaches nothing that is written."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rudder_controllers.llm.backends.remote import RemoteBackend

from rudder.conformance.situations import episode, task
from rudder.engine import RunOptions
from rudder.home import Home
from rudder.replay.engine import ReplayEngine
from rudder.spec import Spec
from rudder.steering import ControllerService, ServedController
from rudder.trace import Trace

from .http_servers import ANSWER, Handler, Server, completion, serving

KEY = "sk-very-secret-0123456789"
MakeTrace = Callable[[int, int], Trace]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Refuses, and says the key; then answers."""
    monkeypatch.setenv("TEST_RUDDER_KEY", KEY)
    with serving() as made:

        def reply(handler: Handler) -> None:
            if len(made.seen) % 2:
                handler.answer(401, f"no such key: {KEY}".encode())
            else:
                handler.answer(200, completion(ANSWER))

        made.reply = reply
        yield made
        assert made.seen
        assert {headers["Authorization"] for _, headers, _ in made.seen} == {f"Bearer {KEY}"}


def spec(server: Server) -> Spec:
    params = {"url": server.url, "key_env": "TEST_RUDDER_KEY", "timeout_s": 10.0, "retries": 0}
    return Spec("smollm2-135m-server", params)


def files_with_key(folder: Path) -> list[Path]:
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert written
    return [path for path in written if KEY.encode() in path.read_bytes()]


def replay(server: Server, trace: Trace, home: Home) -> None:
    engine = ReplayEngine(trace)
    found = engine.run(engine.scenario, spec(server), RunOptions(home, home.runs / "run"))
    assert {line["outcome"] for line in found.decisions} == {"valid", "error"}


def test_in_a_run(
    server: Server, small_trace: MakeTrace, home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    replay(server, small_trace(2, 4), home)
    assert "BackendError: http" in caplog.text
    assert KEY not in caplog.text
    assert files_with_key(home.root) == []


def test_the_test_would_notice(
    server: Server,
    small_trace: MakeTrace,
    home: Home,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backend that tells what it was answered, in the log and in an error."""
    post = RemoteBackend._post

    def talkative(backend: RemoteBackend, *arguments: object) -> tuple[int, str, bytes]:
        status, kind, body = post(backend, *arguments)  # type: ignore[arg-type]
        logging.getLogger("rudder_controllers.llm").debug("%s", body)
        if status == 401:
            raise RuntimeError(body.decode())
        return status, kind, body

    monkeypatch.setattr(RemoteBackend, "_post", talkative)
    caplog.set_level(logging.DEBUG)
    replay(server, small_trace(2, 4), home)
    assert KEY in caplog.text
    assert files_with_key(home.root) != []


def test_in_the_process_that_serves_trainers(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "controller.log"
    with ControllerService(spec(server), log=log) as service:
        controller = ServedController(service.socket, spec(server))
        controller.reset(task())
        answers = [controller.decide(observation) for observation in episode()[:2]]
        controller.close()
    assert [answer.outcome for answer in answers] == ["error", "valid"]
    assert "status 401" in log.read_text()  # with the trace of the calls
    assert files_with_key(tmp_path) == []
    assert KEY not in json.dumps([repr(answer) for answer in answers])


@pytest.mark.full
def test_on_the_command_line_and_in_mlflow(
    server: Server,
    small_trace: MakeTrace,
    tmp_path: Path,
    cli: Callable[..., Any],
) -> None:
    trace = small_trace(2, 4)
    ran = cli("replay", trace.folder, "-c", spec(server), "--track", "--json", timeout=300)
    assert ran.code == 0, ran.err
    assert KEY not in ran.out + ran.err
    assert (tmp_path / "rudder-data" / "mlflow.db").is_file()
    assert files_with_key(tmp_path) == []
