"""``rudder ui``: a real server over the store of a data directory."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from rudder.errors import UsageError
from rudder.home import Home
from rudder.tracking import Tracker
from rudder.tracking.ui import _terminable, serve

from .conftest import MakeResult, free_port

_MAIN = "import sys; from rudder.cli.app import main; sys.exit(main())"


def test_it_serves_the_newest_experiment_and_ends_with_its_server(
    home: Home, make_result: MakeResult
) -> None:
    result = make_result()
    for experiment in ("older", "newer"):
        tracker = Tracker(home)
        with tracker.run(result.scenario, result.controller, experiment=experiment) as tracked:
            tracked.finish(result)
    with tracker.store.session() as client:
        newest = client.get_experiment_by_name("newer").experiment_id
    port = free_port()
    ui = subprocess.Popen(
        [sys.executable, "-I", "-c", _MAIN, "ui", "--port", str(port), "--home", str(home.root)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert ui.stderr is not None
    line = ui.stderr.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+/\S+", line)
    assert found, line + ui.stderr.read()
    page = f"#/experiments/{newest}/runs?workflowType=machine_learning"
    assert found.group() == f"http://127.0.0.1:{port}/{page}"
    base = f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(base, timeout=10) as answer:
        assert b"MLflow" in answer.read()
    asked = urllib.request.Request(
        f"{base}/ajax-api/2.0/mlflow/runs/search",
        json.dumps({"experiment_ids": [newest]}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=10) as answer:
        (run,) = json.load(answer)["runs"]
    assert run["info"]["run_id"] == tracked.run_id
    artifact = f"get-artifact?run_uuid={tracked.run_id}&path=figures/time_split.png"
    with urllib.request.urlopen(f"{base}/{artifact}", timeout=10) as answer:
        assert answer.read().startswith(b"\x89PNG")
    ui.send_signal(signal.SIGTERM)
    assert ui.wait(20) == 0, ui.stderr.read()
    ui.stderr.close()
    with socket.socket() as probe:  # nobody listens any more
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def processes_on(home: Home) -> list[str]:
    """Numbers of the processes whose command line names the data directory's store."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if home.mlflow_uri.encode() in command.read_bytes():
                found.append(command.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
    return found


def test_a_killed_ui_takes_its_server_along(home: Home) -> None:
    port = free_port()
    ui = subprocess.Popen(
        [sys.executable, "-I", "-c", _MAIN, "ui", "--port", str(port), "--home", str(home.root),
         "--no-open"],
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert ui.stderr is not None
    assert f":{port}/" in ui.stderr.readline()
    assert processes_on(home)
    ui.kill()
    ui.wait(10)
    ui.stderr.close()
    deadline = time.monotonic() + 30
    while processes_on(home):
        assert time.monotonic() < deadline, processes_on(home)
        time.sleep(0.1)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_taken_port_is_wrong_use(home: Home, cli: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cli("ui", "--port", str(port), "--no-open", "--home", home.root)
    assert done.code == 2
    assert f"port {port}" in done.err
    assert "--port" in done.err


def test_an_address_of_another_machine_is_wrong_use(home: Home) -> None:
    with pytest.raises(UsageError, match=r"192\.0\.2\.1"):
        serve(home, "192.0.2.1", free_port(), open_browser=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_both_signals_end_it_quietly(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with _terminable():
        signal.raise_signal(number)
        time.sleep(10)
    assert "ended" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
