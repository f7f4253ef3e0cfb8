"""Results made by hand, a store whose tables are there, and a real MLflow server."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rudder.home import Home
from rudder.result import MINIBATCH_SCHEMA, SUMMARY_KEYS, RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.tracking import Tracker
from rudder.tracking.store import Store, environment

MakeResult = Callable[..., RunResult]


def make_table(epochs: int = 2, minibatches: int = 3, ranks: int = 2) -> pa.Table:
    """Rank r at step s: 100 remote nodes, 10 * s hits, 10 * r replaced; seconds grow with rank."""
    rows = [
        {
            "rank": rank, "epoch": step // minibatches, "step": step, "seeds": 50 * (rank + 1),
            "local": 400, "remote_sampled": 100, "hits": 10 * step, "misses": 100 - 10 * step,
            "replaced": 10 * rank, "fetched": 100 - 10 * step + 5 * rank, "stale_share": 0.1 * rank,
            "occupancy": 1.0, "sample_s": 0.01, "fetch_s": 0.02 * (rank + 1), "compute_s": 0.25,
            "stall_s": 0.125 * (rank + 1), "wait_decision_s": 0.0,
            "bytes_features": 4 * (100 - 10 * step), "bytes_ids": 800, "bytes_sampling": 10,
            "bytes_gradients": 20, "bytes_evaluation": 0, "loss": 3.0 * (rank + 1),
        }
        for rank in range(ranks)
        for step in range(epochs * minibatches)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=MINIBATCH_SCHEMA)


@pytest.fixture
def scenario() -> Scenario:
    return Scenario.make(graph="sbm:nodes=500", epochs=2)


@pytest.fixture
def controller() -> Spec:
    return Spec.parse("fixed:interval=16")


@pytest.fixture
def make_result(scenario: Scenario, controller: Spec) -> MakeResult:
    def make(table: pa.Table | None = None, **summary: Any) -> RunResult:
        keys = {key: float(i) for i, key in enumerate(SUMMARY_KEYS)}
        return RunResult(
            scenario,
            controller,
            make_table() if table is None else table,
            [{"rank": 0, "step": 3, "replace": True}, {"rank": 1, "step": 3, "replace": False}],
            {**keys, "run_id": "20260131-235959-a1b2c3", "pass_at_1": None, **summary},
        )

    return make


@pytest.fixture(scope="session")
def fresh_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with MLflow's tables, to copy: making them takes seconds."""
    home = Home(tmp_path_factory.mktemp("fresh"))
    with Store(home).session():
        return home.root / "mlflow.db"


@pytest.fixture
def home(tmp_path: Path, fresh_store: Path) -> Home:
    """A data directory whose store has its tables."""
    found = Home.resolve(tmp_path / "rudder-data")
    shutil.copy(fresh_store, found.root / "mlflow.db")
    return found


@pytest.fixture
def tracker(home: Home) -> Tracker:
    return Tracker(home)


@pytest.fixture
def client(tracker: Tracker) -> Any:
    """MLflow's client on the tracker's store."""
    with tracker.store.session() as found:
        return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A real MLflow server."""

    def __init__(self, folder: Path, store: Path) -> None:
        shutil.copy(store, folder / "mlflow.db")
        self.folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            sys.executable, "-I", "-m", "mlflow", "server", "--port", str(self.port),
            "--workers", "1", "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db",
            "--artifacts-destination", str(self.folder / "artifacts"),
        ]  # fmt: skip
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**environment(), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 180
        while not self._answers():
            assert time.monotonic() < deadline, (self.folder / "server.log").read_text()
            assert self._process.poll() is None, (self.folder / "server.log").read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2):
                return True
        except OSError:
            return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, fresh_store: Path) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("server"), fresh_store)
    found.start()
    yield found
    found.stop()
