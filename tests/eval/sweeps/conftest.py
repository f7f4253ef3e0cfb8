"""A tiny suite, controllers that misbehave, and a store whose tables are there."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rudder_eval.contenders import contenders
from rudder_eval.requests import Request, Watch
from rudder_eval.runner import Outcome, evaluate

from rudder.home import Home
from rudder.plugins import PluginFile, load_file
from rudder.suite import Suite
from rudder.tracking.store import Store

BASE = {
    "graph": "sbm:nodes=600,classes=3",
    "parts": 2,
    "partition_method": "random",
    "epochs": 2,
    "batch_size": 40,
    "policy": "massivegnn",
}
SCENARIOS: dict[str, dict[str, Any]] = {
    "plain": {"split": "id_val"},
    "large": {"split": "ood_buffer", "buffer": 0.5},
    "batch": {"split": "ood_batch_size", "batch_size": 20},
}
PLUGIN = '''
import os
from rudder import Capabilities, Controller, Decision
from rudder.registries import CONTROLLERS


class Agent(Controller):
    """Asks no model; says that it would."""

    tags = Capabilities(llm=True, paths=("memory",))

    def __init__(self, memory: str = "", ballast_mb: int = 0):
        self.memory, self.ballast_mb = memory, ballast_mb

    def _reset(self, task):
        self.ballast = b"x" * (self.ballast_mb * 1_000_000)

    def _decide(self, observation):
        return Decision(replace=observation.minibatch % 3 == 0)


class NoStart(Controller):
    def __init__(self, batch_size: int = 20):
        self.batch_size = batch_size

    def _reset(self, task):
        if task.facts.batch_size == self.batch_size:
            raise RuntimeError("no such batch size here")

    def _decide(self, observation):
        print("what a controller prints is no report")
        return Decision(replace=True)


class Raising(Controller):
    def _decide(self, observation):
        raise ValueError("out of ideas")


class Dying(Controller):
    """Takes its process with it, under an odd seed."""

    def _reset(self, task):
        self.odd = task.seed % 2

    def _decide(self, observation):
        if self.odd:
            os._exit(9)
        return Decision(replace=False)


class Waiting(Controller):
    """Asks a server that may not be there yet."""

    tags = Capabilities(llm=True)

    def __init__(self, ready: str):
        self.ready = ready

    def _decide(self, observation):
        if not os.path.exists(self.ready):
            raise RuntimeError("refused")
        return Decision(replace=False)


class Fitted(Controller):
    tags = Capabilities(fitted_model=True)

    def __init__(self, model: str):
        self.model = model

    def _decide(self, observation):
        return Decision(replace=False)


for name, target in {
    "agent": Agent, "no-start": NoStart, "raising": Raising, "dying": Dying, "fitted": Fitted,
    "waiting": Waiting,
}.items():
    CONTROLLERS.register(name, target, summary="of the tests")
'''


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> PluginFile:
    """Controllers of the tests, registered here and by every process that works for a sweep."""
    path = tmp_path_factory.mktemp("plugin") / "misbehaving.py"
    path.write_text(textwrap.dedent(PLUGIN))
    return load_file(path)


@pytest.fixture(scope="session")
def fresh_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = Home(tmp_path_factory.mktemp("fresh"))
    with Store(home).session():
        return home.root / "mlflow.db"


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, fresh_store: Path) -> Path:
    """A data directory with the partition and traces of the tiny suite, to copy."""
    home = Home.resolve(tmp_path_factory.mktemp("prepared"))
    request = Request(tiny(), contenders(["static"], home, {}), (1000, 1001), name="first")
    evaluate(request, home, track=False)
    for name in ("sweeps", "runs"):
        shutil.rmtree(home.root / name)
    shutil.copy(fresh_store, home.root / "mlflow.db")
    return home.root


@pytest.fixture
def home(tmp_path: Path, prepared: Path) -> Home:
    shutil.copytree(prepared, tmp_path / "rudder-data")
    return Home.resolve(tmp_path / "rudder-data")


def tiny(*names: str) -> Suite:
    """The suite, or some of its scenarios."""
    suite = Suite.of("tiny", {"base": BASE, "scenarios": SCENARIOS})
    return suite.select(names)


def run(
    home: Home,
    controllers: Sequence[str],
    *scenarios: str,
    seeds: int = 2,
    plugins: Sequence[PluginFile] = (),
    track: bool = False,
    watch: Watch | None = None,
    **request: Any,
) -> Outcome:
    """A sweep named after the tiny suite."""
    chosen = contenders(controllers, home, {})
    asked = Request(tiny(*scenarios), chosen, range(1000, 1000 + seeds), **request)
    return evaluate(asked, home, track=track, plugins=plugins, watch=watch)
