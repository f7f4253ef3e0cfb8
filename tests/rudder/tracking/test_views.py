"""The page that ``rudder ui`` opens, and the view of a sweep that it saves."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any
from urllib.parse import parse_qs

from rudder.home import Home
from rudder.tracking import Tracker
from rudder.tracking.ui import _newest_page
from rudder.tracking.views import PREFIX

from .conftest import MakeResult


def make_sweep(tracker: Tracker, number: int, make_result: MakeResult, **cells: str) -> str:
    """A sweep with a cell per controller, in the distribution that is named; its run's id."""
    result = make_result()
    parent = f"{number}" * 32
    tags = {"kind": "sweep", "sweep": f"number {number}"}
    with tracker.group(parent, f"sweep {number}", {}, tags) as group:
        for index, (controller, distribution) in enumerate(cells.items()):
            tracker.log(
                f"{number}{index}".ljust(32, "f"), result.scenario, result.controller,
                start_ms=1, end_ms=2, result=result, parent=parent, brief=True,
                tags={
                    "controller": controller, "distribution": distribution,
                    "family": "control" if controller == "chance" else "static",
                },
            )  # fmt: skip
        group.finish()
    assert group.run_id is not None
    return group.run_id


def state_of(client: Any, experiment: str, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A view as MLflow keeps it, and what it holds."""
    view = json.loads(client.get_experiment(experiment).tags[PREFIX + key])
    scheme, _, packed = view["state"].partition(";")
    assert scheme == "deflate"
    return view, json.loads(zlib.decompress(base64.b64decode(packed)))


def test_an_empty_store_has_a_page(home: Home) -> None:
    with Tracker(home).store.session() as client:
        client.delete_experiment("0")
    assert _newest_page(home) == "#/experiments?workflowType=machine_learning"


def test_the_newest_sweep_opens_in_a_view_of_its_cells(
    home: Home, tracker: Tracker, client: Any, make_result: MakeResult
) -> None:
    make_sweep(tracker, 1, make_result, static="ID")
    newest = make_sweep(tracker, 2, make_result, static="ID", always="OOD", chance="OOD")
    result = make_result()
    with tracker.run(result.scenario, result.controller, experiment="newer") as tracked:
        tracked.finish(result)
    experiment = client.get_experiment_by_name("rudder").experiment_id
    page, _, asked = _newest_page(home).partition("?")
    assert page == f"#/experiments/{experiment}/runs"
    assert parse_qs(asked) == {
        "workflowType": ["machine_learning"], "viewStateShareKey": [f"sweep-{newest}"],
    }  # fmt: skip
    view, state = state_of(client, experiment, f"sweep-{newest}")
    assert view["name"] == "sweep 2"
    found = client.search_runs([experiment], state["searchFilter"])
    assert {run.data.tags["controller"] for run in found} == {"static", "always"}
    assert state["groupsExpanded"] == {
        "tag.controller.always,tag.distribution.OOD": False,
        "tag.controller.static,tag.distribution.ID": False,
    }


def test_a_sweep_that_has_grown_is_seen_whole(
    home: Home, tracker: Tracker, client: Any, make_result: MakeResult
) -> None:
    run_id = make_sweep(tracker, 3, make_result, static="ID")
    _newest_page(home)
    make_sweep(tracker, 3, make_result, static="ID", always="ID", fixed="OOD")
    _newest_page(home)
    experiment = client.get_run(run_id).info.experiment_id
    _, state = state_of(client, experiment, f"sweep-{run_id}")
    assert len(state["groupsExpanded"]) == 3


def test_an_experiment_that_somebody_else_made_opens_on_its_runs(
    tracker: Tracker, client: Any, make_result: MakeResult
) -> None:
    place = tracker.home.mlflow_artifacts.as_uri()
    kind = {"mlflow.experimentKind": "genai_development"}
    client.create_experiment("theirs", place)
    client.create_experiment("chosen", place, tags=kind)
    result = make_result()
    for name in ("theirs", "chosen"):
        with tracker.run(result.scenario, result.controller, experiment=name) as tracked:
            tracked.finish(result)
    kinds = [
        client.get_experiment_by_name(name).tags["mlflow.experimentKind"]
        for name in ("theirs", "chosen")
    ]
    assert kinds == ["custom_model_development", "genai_development"]
