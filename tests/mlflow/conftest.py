"""A small real sweep, run through the MLflow project as anybody would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from rudder.cli.app import main
from rudder.home import Home

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = REPOSITORY / "mlflow"
SUITE = """
[base]
graph = "sbm:nodes=400,classes=3"
parts = 2
partition_method = "random"
epochs = 1
batch_size = 40
policy = "massivegnn"

[scenarios.plain]
split = "id_val"

[scenarios.batch]
split = "ood_batch_size"
batch_size = 20
"""
CONTROLLERS = ("always", "static")
SCENARIOS = ("plain", "batch")


@dataclass(frozen=True)
class Swept:
    """A data directory with one sweep, ``small``, and its report.

    Attributes:
        said: what ``mlflow run`` printed.
    """

    home: Home
    said: str


def project(entry: str, home: Path, **parameters: object) -> subprocess.CompletedProcess[str]:
    """Run an entry point of the project in this environment."""
    told = {"home": home, **parameters}
    given = [part for key, value in told.items() for part in ("-P", f"{key}={value}")]
    folder = Path(sys.executable).parent
    return subprocess.run(
        [sys.executable, "-I", "-m", "mlflow", "run", str(PROJECT), "-e", entry,
         "--env-manager", "local", "--experiment-name", "projects", *given],
        env={
            **os.environ,
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "MLFLOW_TRACKING_URI": f"sqlite:///{home}/mlflow.db",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        },
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )  # fmt: skip


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    home = Home.resolve(tmp_path_factory.mktemp("project") / "rudder-data")
    suite = home.root / "small.toml"
    suite.write_text(SUITE)
    done = project("evaluate", home.root, suite=suite, controllers=",".join(CONTROLLERS), seeds=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert main(["report", "small", "--home", str(home.root)]) == 0
    return Swept(home, done.stdout + done.stderr)
