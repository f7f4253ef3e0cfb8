"""A sweep with everything that a report may have to show, and text that would break out of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rudder_eval.cells import Cell

LLM = "smollm2-135m"
HOSTILE = 'fixed:interval=8,x=<script>alert(1)</script>"><img src=x onerror=alert(2)>|$a$_*b*`c`'
EFFECTS = {
    "none": 1.0, "static": 0.12, "always": 0.1, HOSTILE: 0.06, "xgboost": 0.02, "mlp": 0.03,
    LLM: 0.045, "timing-oracle": 0.0,
    f"control-rate({LLM})": 0.09, f"control-shuffled({LLM})": 0.06,
}  # fmt: skip
FAMILIES = {
    "none": "baseline", "static": "baseline", "xgboost": "classifier", "mlp": "classifier",
    LLM: "llm", "timing-oracle": "oracle",
    f"control-rate({LLM})": "control", f"control-shuffled({LLM})": "control",
}  # fmt: skip
SHIFTED = {"xgboost": 0.1, "mlp": 0.12}
MORE: dict[str, dict[str, Any]] = {
    LLM: {
        "pass_at_1": 0.85, "pass_at_1_constant": 0.7, "pass_at_1_balanced": 0.6,
        "valid_share": 0.99, "latency_p50_s": 0.3, "answer_s": 0.3, "replace_share": 0.4,
    },
    "xgboost": {"latency_p50_s": 0.001, "answer_s": 0.001, "replace_share": 0.6},
    "mlp": {"latency_p50_s": 0.002, "answer_s": 0.002, "replace_share": 0.7},
    "timing-oracle": {"replace_share": 0.35},
}  # fmt: skip
HEADROOM = {"uniform": 0.01, "wordnet": 0.04}


def without_buffer(cell: Cell) -> Cell:
    """What a run without a buffer comes to."""
    if cell.controller != "none" or not cell.finished:
        return cell
    sampled = cell.summary["remote_sampled"]
    changed = {
        "fetched": sampled, "min_fetched": sampled, "hits": 0, "hit_rate": None,
        "communication_vs_no_buffer": 1.0, "regret": 1.0, "regret_to_timing_oracle": 1.0,
    }  # fmt: skip
    return replace(cell, summary={**cell.summary, **changed})


@pytest.fixture(name="cells", scope="session")
def _cells(planted: Any) -> list[Cell]:
    cells = planted(
        EFFECTS, shifted=SHIFTED, families=FAMILIES, more=MORE, headroom=HEADROOM, seeds=4,
        between=0.002, noise=0.004,
        failed=[("mlp", "fan-out", 1), *(("xgboost", "held", seed) for seed in range(4))],
    )  # fmt: skip
    return [without_buffer(cell) for cell in cells]


def decision(rank: int, minibatch: int, replace_: bool, hits: float | None) -> dict[str, Any]:
    """A line of ``decisions.jsonl``, as far as the report reads it."""
    return {
        "rank": rank,
        "applied_at": minibatch,
        "decision": {"replace": replace_},
        "observation": {
            "minibatch": minibatch, "epoch": minibatch // 4, "window": {"hit_rate": hits},
        },
    }  # fmt: skip


def write_run(folder: Path, lines: list[dict[str, Any]], **scenario: Any) -> None:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"scenario": scenario}))
    (folder / "decisions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
