"""Saved views of MLflow's UI: a sweep's runs in the columns, groups and charts to compare them by.

MLflow keeps a view as a tag of its experiment, in the UI's own terms, which are no documented
interface: ``tests/mlflow/test_workflow.py`` holds them to the MLflow that is pinned. The UI
ignores what it does not know, and shows the runs without a view that it cannot read.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from typing import Any

PREFIX = "mlflow.sharedViewState."
"""Begins the names of such tags; the rest is the view's key."""
SWEEP = "tags.kind = 'sweep'"
"""Finds the runs that stand for sweeps."""
GROUPS = ("controller", "distribution")
"""Tags that a sweep's runs are grouped by: who decided, and whether ID or OOD."""
METRICS = (
    "communication_vs_no_buffer", "regret_to_timing_oracle", "regret", "hit_rate",
    "epoch_seconds", "pass_at_1",
)  # fmt: skip
"""A column and a chart each. The UI leaves out charts of what no run has."""
TAGS = ("split", "scenario", "seed")
_COLUMNS = [*(f"metrics.`{name}`" for name in METRICS), *(f"tags.`{name}`" for name in TAGS)]
_NAME = "attributes.`Run Name`"
_NAME_WIDTH, _WIDTH = 410, 150  # pixels
_SECTION = "rudder-sweep"
_BARS = 40
_PAGE = 1000


def sweep_filter(run_id: str) -> str:
    """Finds the cells of the sweep that a run stands for, but for controls of its controllers."""
    return f"tags.`mlflow.parentRunId` = '{run_id}' and tags.family != 'control'"


def save_sweep_view(client: Any, experiment_id: str, run_id: str) -> str:
    """Keep the view of a sweep's cells with their experiment, in place of an earlier one.

    Args:
        client: an ``MlflowClient``.
        run_id: of the run that stands for the sweep. Its name is the view's in the menu *Views*.

    Returns:
        The view's key: ``viewStateShareKey`` in the address of the runs page.
    """
    key = f"sweep-{run_id}"
    info = client.get_run(run_id).info
    state = json.dumps(_state(run_id, _groups(client, experiment_id, run_id)))
    packed = base64.b64encode(zlib.compress(state.encode())).decode()
    view = {
        "name": info.run_name, "createdAt": info.start_time, "updatedAt": info.start_time,
        "state": f"deflate;{packed}",
    }  # fmt: skip
    client.set_experiment_tag(experiment_id, PREFIX + key, json.dumps(view))
    return key


def _groups(client: Any, experiment_id: str, run_id: str) -> set[tuple[str, ...]]:
    """Values of :data:`GROUPS` among the sweep's cells."""
    found: set[tuple[str, ...]] = set()
    token = None
    while True:
        page = client.search_runs(
            [experiment_id], sweep_filter(run_id), max_results=_PAGE, page_token=token
        )
        found.update(tuple(run.data.tags.get(name, "null") for name in GROUPS) for run in page)
        token = page.token
        if not token:
            return found


def _state(run_id: str, groups: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    closed = (
        ",".join(f"tag.{name}.{value}" for name, value in zip(GROUPS, values, strict=True))
        for values in sorted(groups)
    )
    return {
        "searchFilter": sweep_filter(run_id),
        "orderByKey": "tags.`controller`",
        "orderByAsc": True,
        "selectedColumns": _COLUMNS,
        "columnOrder": [_NAME, *_COLUMNS],
        "columnWidths": {_NAME: _NAME_WIDTH, **dict.fromkeys(_COLUMNS, _WIDTH)},
        "groupBy": {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": "tag", "groupByData": name} for name in GROUPS],
        },
        "groupsExpanded": dict.fromkeys(closed, False),
        "runsHiddenMode": "SHOW_ALL",
        "compareRunSections": [
            {"uuid": _SECTION, "name": "In and out of distribution", "display": True,
             "isReordered": True, "deleted": False, "isGenerated": False},
        ],
        "compareRunCharts": [
            {"uuid": f"{_SECTION}-{name}", "type": "BAR", "metricKey": name,
             "displayName": name, "runsCountToCompare": _BARS, "metricSectionId": _SECTION,
             "deleted": False, "isGenerated": False}
            for name in METRICS
        ],
        "isAccordionReordered": True,
    }  # fmt: skip
