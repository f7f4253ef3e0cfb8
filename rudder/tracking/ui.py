"""MLflow's own server and UI over the store of a data directory, for one person."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from urllib.parse import urlencode

from rudder.cli.output import say
from rudder.errors import TrackingError, UsageError
from rudder.home import Home
from rudder.tracking.store import Store, environment
from rudder.tracking.views import SWEEP, save_sweep_view

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 5.0


def serve(home: Home, host: str, port: int, *, open_browser: bool) -> None:
    """Serve until the server ends, or SIGINT or SIGTERM ends it.

    However this process ends, the server ends with it.

    Raises:
        UsageError: the address cannot be listened on.
        TrackingError: the server does not start.
    """
    _check_free(host, port)
    page = _newest_page(home)
    with _terminable(), _server(home, host, port) as server:
        base = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        _wait_until_up(server, base, _log(home))
        say(f"MLflow UI on {home.mlflow_uri}: {base}/{page}   (Ctrl-C ends it)")
        if open_browser and (sys.platform != "linux" or _has_screen()):
            webbrowser.open(f"{base}/{page}")
        if (code := server.wait()) != 0:
            raise TrackingError(f"the MLflow server ended with exit code {code}; see {_log(home)}")


def _check_free(host: str, port: int) -> None:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another: --port"
        ) from error


def _newest_page(home: Home) -> str:
    """Runs page of the newest sweep, else of the newest experiment; makes the store if need be.

    MLflow's UI keeps training and language models apart by what the address asks for.
    """
    asked = {"workflowType": "machine_learning"}
    with Store(home).session() as client:
        newest = client.search_experiments(order_by=["creation_time DESC"])
        if not newest:
            return f"#/experiments?{urlencode(asked)}"
        page = newest[0].experiment_id
        sweeps = client.search_runs(
            [one.experiment_id for one in newest], SWEEP, max_results=1,
            order_by=["attributes.start_time DESC"],
        )  # fmt: skip
        if sweeps:
            info = sweeps[0].info
            page = info.experiment_id
            asked["viewStateShareKey"] = save_sweep_view(client, page, info.run_id)
    return f"#/experiments/{page}/runs?{urlencode(asked)}"


@contextmanager
def _server(home: Home, host: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable, "-I", "-m", "rudder.tracking.keeper", str(STOP_TIMEOUT_S),
        sys.executable, "-I", "-m", "mlflow", "server", "--host", host, "--port", str(port),
        "--workers", "1", "--backend-store-uri", home.mlflow_uri,
        "--default-artifact-root", home.mlflow_artifacts.as_uri(),
    ]  # fmt: skip
    # Its background jobs serve language-model features only.
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with _log(home).open("wb") as log:
        server = subprocess.Popen(
            command,
            env={**quiet, **environment()},
            cwd=home.root,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield server
    finally:
        # The end of its input, which comes too if this process is killed, lets the keeper end all.
        if server.stdin is not None:
            server.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            server.wait(2 * STOP_TIMEOUT_S)
        with suppress(ProcessLookupError):  # all of them have ended
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait_until_up(server: subprocess.Popen[bytes], base: str, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise TrackingError(
                f"the MLflow server ended with exit code {server.returncode} before it answered; "
                f"what it said is in {log}"
            )
        try:
            with urllib.request.urlopen(f"{base}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise TrackingError(
        f"the MLflow server did not answer at {base} in {START_TIMEOUT_S:.0f} s; see {log}"
    )


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the block like Ctrl-C, and both end it quietly."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        say("MLflow UI ended.")
    finally:
        signal.signal(signal.SIGTERM, before)


def _log(home: Home) -> Path:
    return home.root / "mlflow-ui.log"


def _has_screen() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
