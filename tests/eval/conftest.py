"""Sweeps that were never run, with effects that are known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from rudder_eval.cells import Cell, Family

SCENARIOS = {
    "held": "id_val",
    "held-large": "id_val",
    "uniform": "id_train",
    "batch-50": "ood_batch_size",
    "batch-800": "ood_batch_size",
    "fan-out": "ood_fan_out",
    "wordnet": "ood_graph",
    "communities": "ood_drift",
}
Planted = Callable[..., list[Cell]]


def planted(
    effects: Mapping[str, float],
    *,
    shifted: Mapping[str, float] | None = None,
    families: Mapping[str, Family] | None = None,
    scenarios: Mapping[str, str] | None = None,
    seeds: int = 10,
    between: float = 0.01,
    noise: float = 0.01,
    headroom: Mapping[str, float] | None = None,
    more: Mapping[str, Mapping[str, Any]] | None = None,
    failed: Sequence[tuple[str, str, int]] = (),
    rng: int = 0,
) -> list[Cell]:
    """Cells in which ``log(communication)`` is what was planted, and noise.

    Args:
        effects: by controller, on the log of rows fetched, in all scenarios.
        shifted: what is added to them out of distribution.
        families: of controllers that are no heuristics.
        scenarios: split by name.
        between: standard deviation of each controller's own effect in each scenario.
        noise: of each cell. Scenarios and seeds differ much more, for all controllers alike.
        headroom: by scenario; 10 % elsewhere.
        more: by controller, what else its summaries hold.
        failed: controller, scenario and seed of cells that failed.
    """
    random = np.random.default_rng(rng)
    found = []
    for name, split in (scenarios or SCENARIOS).items():
        base = random.normal(0, 0.5)
        of_seed = random.normal(0, 0.2, seeds)
        share = 0.1 if headroom is None else headroom.get(name, 0.1)
        for controller, effect in effects.items():
            moved = (shifted or {}).get(controller, 0.0) if split.startswith("ood_") else 0.0
            own = effect + moved + random.normal(0, between)
            for seed in range(seeds):
                over = own + random.normal(0, noise)
                rows = 50_000 * np.exp(base + of_seed[seed])
                digest = hashlib.sha256(f"{name} {controller} {seed}".encode()).hexdigest()[:16]
                summary = {
                    "fetched": rows * np.exp(over),
                    "remote_sampled": 4 * rows,
                    "hits": 4 * rows - rows * np.exp(over),
                    "min_fetched": 0.7 * rows,
                    "communication_vs_no_buffer": np.exp(over) / 4,
                    "regret": np.exp(over) / 0.7,
                    "regret_to_timing_oracle": np.exp(over),
                    "hit_rate": 1 - np.exp(over) / 4,
                    "epoch_seconds": 2 * np.exp(over),
                    "imbalance": 1.2,
                    "headroom": share,
                    "best_constant": rows * (1 + share),
                    **(more or {}).get(controller, {}),
                }
                dead = (controller, name, seed) in failed
                found.append(
                    Cell(
                        cell=digest,
                        scenario=name,
                        split=split,
                        controller=controller,
                        family=(families or {}).get(controller, "heuristic"),
                        seed=seed,
                        status="failed" if dead else "finished",
                        axis=split.removeprefix("ood_") if split.startswith("ood_") else "",
                        run_id=f"20260101-000000-{digest[:6]}",
                        error="ControllerError: it fell over" if dead else None,
                        summary={} if dead else summary,
                        seconds=1.5,
                    )
                )
    return found


@pytest.fixture(name="planted", scope="session")
def _planted() -> Planted:
    return planted
