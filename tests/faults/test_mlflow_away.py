"""The MLflow server is away: the run goes on, is kept, and is sent when the server is back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rudder.home import Home
from rudder.tracking.store import Store

from ..conftest import RunRudder, Traces
from ..rudder.tracking.conftest import Server
from .conftest import MOMENTS, SOME, THRICE, Train

pytestmark = [pytest.mark.cluster, pytest.mark.full]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = Home.resolve(tmp_path_factory.mktemp("fresh"))
    with Store(home).session():
        made = Server(tmp_path_factory.mktemp("server"), home.root / "mlflow.db")
    made.start()
    yield made
    made.stop()


@THRICE
@MOMENTS
def test_the_server_is_away(
    train: Train,
    cli: RunRudder,
    server: Server,
    traces: Traces,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    moment: str,
    repeat: int,
) -> None:
    monkeypatch.delenv(traces.VARIABLE)  # the server outlives the test
    home = tmp_path / "data"
    home.mkdir()
    if moment == "start-up":
        server.stop()
    training = train("--tracking-uri", server.uri, home=home, epochs=SOME // 4, track=True)
    training.wait_for("mid-epoch")
    if moment == "mid-epoch":
        server.stop()
    training.goes_on()
    kept = [folder for folder in (home / "outbox").iterdir() if not folder.name.startswith(".")]
    assert len(kept) == 1
    server.start()
    sent = cli("sync", "--home", home, "--json", timeout=120)
    assert sent.code == 0, sent.err
    [row] = json.loads(sent.out)
    assert row["sent"] is True
    with Store(Home.resolve(home), server.uri).session() as client:
        assert client.get_run(row["run_id"]).info.status == "FINISHED"
