"""The MLflow project and the server for teams in ``mlflow/``."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from rudder.cli.app import app

from .conftest import PROJECT, REPOSITORY


@pytest.fixture(scope="module")
def entry_points() -> dict[str, Any]:
    from mlflow.projects._project_spec import load_project

    loaded = load_project(str(PROJECT))
    names = yaml.safe_load((PROJECT / "MLproject").read_text())["entry_points"]
    return {name: loaded.get_entry_point(name) for name in names}


def test_the_workflow_is_there(entry_points: dict[str, Any]) -> None:
    assert {"collect", "label", "fit", "evaluate", "report", "train", "ui"} <= set(entry_points)


def test_every_entry_point_is_a_command_with_these_options(
    entry_points: dict[str, Any], tmp_path: Path
) -> None:
    commands = get_command(app)
    for name, entry in entry_points.items():
        program, command, *arguments = shlex.split(entry.compute_command({}, str(tmp_path)))
        assert program == "rudder"
        found = commands.get_command(None, command)
        with found.make_context(command, arguments, resilient_parsing=False) as context:
            assert context.params["home"] == Path("../rudder-data"), name


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((PROJECT / "compose.yaml").read_text())["services"]
    return found


def test_the_server_stores_in_postgres_and_s3(services: dict[str, Any]) -> None:
    server = services["server"]
    assert server["environment"]["MLFLOW_BACKEND_STORE_URI"].startswith("postgresql")
    assert server["environment"]["MLFLOW_S3_ENDPOINT_URL"] == "http://artifacts:9000"
    assert "--artifacts-destination=s3://mlflow" in server["command"]
    assert services["bucket"]["command"][-1] == "store/mlflow"
    for name in server["depends_on"]:
        assert name in services
    for name, service in services.items():
        if name != "bucket":
            assert service["healthcheck"], name


def test_the_server_takes_the_options_that_it_is_given(services: dict[str, Any]) -> None:
    from mlflow.cli import cli

    program, command, *arguments = services["server"]["command"]
    assert program == "mlflow"
    server = cli.commands[command]
    with server.make_context(command, list(arguments), resilient_parsing=True) as context:
        assert context.params["artifacts_destination"] == "s3://mlflow"
        assert context.params["serve_artifacts"] is True


def test_it_listens_on_this_machine_only_unless_told_and_has_no_default_password(
    services: dict[str, Any],
) -> None:
    assert [name for name, one in services.items() if "ports" in one] == ["server"]
    (port,) = services["server"]["ports"]
    assert port.startswith("${RUDDER_BIND:-127.0.0.1}:")
    text = (PROJECT / "compose.yaml").read_text()
    passwords = re.findall(r"\$\{(\w*PASSWORD)([^}]*)\}", text)
    assert {name for name, _ in passwords} == {"POSTGRES_PASSWORD", "MINIO_ROOT_PASSWORD"}
    assert all(rest.startswith(":?") for _, rest in passwords)
    assert "MLFLOW_DISABLE_TELEMETRY" in services["server"]["environment"]


def test_images_and_versions_are_pinned(services: dict[str, Any]) -> None:
    for service in services.values():
        if "image" in service:
            assert re.search(r":(\d|RELEASE\.\d)", service["image"]), service["image"]
    pinned = re.search(r"^mlflow==(\S+)", (REPOSITORY / "constraints.txt").read_text(), re.M)
    assert pinned is not None
    assert f"mlflow=={pinned[1]} " in (PROJECT / "Dockerfile").read_text()


def test_the_folder_does_not_stand_in_for_the_library() -> None:
    assert not list(PROJECT.rglob("*.py"))
    assert Path(sys.modules["mlflow"].__file__ or "").parent != PROJECT
