"""The same command on real graphs that the project does not ship."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rudder.result import RunResult

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("graph", ["tolokers", "debian_deps_build", "wordnet", "lastfm_asia"])
def test_custom_graphs_train(shared_data: Path, run: Callable[..., RunResult], graph: str) -> None:
    result = run(
        "always", graph=f"custom:npz={shared_data}/graphs/{graph}.npz", epochs=1, batch_size=500
    )
    assert 0 < result.summary["hits"] < result.summary["remote_sampled"]
    assert result.summary["test_metric"] > 0.1


def test_a_multi_label_graph_trains(shared_data: Path, run: Callable[..., RunResult]) -> None:
    raw = shared_data / "raw" / "graphsaint_style_amazon_multilabel"
    result = run("always", graph=f"yelp:from={raw}", epochs=1)
    assert 0 < result.summary["test_metric"] <= 1  # micro-F1
