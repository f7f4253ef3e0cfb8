"""Real runs that several tests look at: each is made once, since a run takes ten seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rudder.engine import RunOptions
from rudder.home import Home
from rudder.plugins import PluginFile
from rudder.registries import ENGINES
from rudder.result import RunResult
from rudder.running import new_run_id
from rudder.scenario import Scenario
from rudder.spec import Spec

GRAPH = "sbm:nodes=6000"

Run = Callable[..., RunResult]


@pytest.fixture(scope="session")
def engine_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data directory whose partitions all runs share."""
    return Home.resolve(tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="session")
def run(engine_home: Home) -> Iterator[Run]:
    """``run("always", parts=2, …)``: a real run on two hosts; the same arguments run once."""
    engine = ENGINES.build("distdgl")

    @cache
    def cached(
        controller: str,
        verify: bool,
        plugins: tuple[PluginFile, ...],
        record: Path | None,
        fields: tuple[tuple[str, Any], ...],
    ) -> RunResult:
        scenario = Scenario.make(**{"graph": GRAPH, "parts": 2, "epochs": 2, **dict(fields)})
        folder: Path = engine_home.runs / new_run_id()
        options = RunOptions(engine_home, folder, plugins, verify=verify, record=record)
        result: RunResult = engine.run(scenario, Spec.parse(controller), options)
        return result

    def call(
        controller: str,
        *,
        verify: bool = False,
        plugins: tuple[PluginFile, ...] = (),
        record: Path | None = None,
        **fields: Any,
    ) -> RunResult:
        return cached(controller, verify, plugins, record, tuple(sorted(fields.items())))

    with engine:
        yield call
