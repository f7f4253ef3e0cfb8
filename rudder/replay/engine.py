"""The engine ``replay``: a recorded trace through buffer, policy, steering and controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rudder.buffer import resolve_capacity
from rudder.engine import Engine, RunOptions
from rudder.errors import ScenarioError, SpecError
from rudder.policies.base import Policy
from rudder.registries import POLICIES
from rudder.replay.clock import RecordedTime, TimeModel
from rudder.replay.loaded import Loaded
from rudder.replay.run import ReplayRun, ratio
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.steering import build_controller, resolve
from rudder.trace import Trace

FREE = ("policy", "fill", "buffer", "prefetch_depth", "mode", "rate", "rate_at", "seed")
"""Scenario fields that a replay may change; the trace fixes the others."""

MakeTime = Callable[[Trace, Scenario], TimeModel]


def recorded_time(trace: Trace, scenario: Scenario) -> TimeModel:
    """The model of time that is used unless another is given."""
    return RecordedTime(scenario, trace.manifest.feature_bytes)


class ReplayEngine(Engine):
    """Replays one trace, as often as asked.

    The trainers go through the trace in step, each with its own buffer and controller, seeded
    alike. Counts are exact; seconds are modelled. Memory: buffers, a part of the trace per rank,
    some numbers per node of the graph and rank, and the run's own table.

    The summary has the common keys, those of :func:`rudder.replay.run.compared`,
    ``timing_oracle_fetched`` and ``timing_oracle_epoch_seconds`` (what the oracle came to; null if
    it was not asked for, or the policy decides itself), ``regret_to_timing_oracle`` (the run's rows
    / the oracle's) and ``modelled``: the keys whose values come from the model of time, beside all
    seconds of the table.

    Args:
        trace: opened, or where it lies.
        make_time: builds the model of time for a scenario.
        measure_latency: an answer takes as long as it really takes; else the controller's
            ``latency_s``, without one 0 s.
        record_decisions: write decisions to the run's directory and return them. They are the
            most of a long run's result.
        oracle: replay a second time, under this controller and the same scenario, mode and latency,
            and compare with it; None = not.
    """

    name = "replay"

    def __init__(
        self,
        trace: Trace | Path | str,
        *,
        make_time: MakeTime = recorded_time,
        measure_latency: bool = False,
        record_decisions: bool = True,
        oracle: Spec | None = None,
        loaded: Loaded | None = None,
    ) -> None:
        self.trace = trace if isinstance(trace, Trace) else Trace.open(Path(trace))
        self._make_time = make_time
        self._measure_latency = measure_latency
        self._record_decisions = record_decisions
        self._oracle = oracle
        self._loaded = Loaded() if loaded is None else loaded

    @property
    def scenario(self) -> Scenario:
        """What was recorded."""
        return self.trace.manifest.scenario

    def check(self, scenario: Scenario, controller: Spec) -> tuple[Scenario, Spec]:
        """See :meth:`rudder.engine.Engine.check`.

        Raises:
            ScenarioError: a field that the trace fixes was changed.
            CapacityError: a buffer larger than what it could hold.
            SpecError, PairingError: an oracle that could not be asked.
        """
        scenario, controller = super().check(scenario, controller)
        recorded, manifest = self.scenario, self.trace.manifest
        told = ", ".join(
            f"{name} = {getattr(scenario, name)!r} (recorded: {getattr(recorded, name)!r})"
            for name in Scenario.model_fields
            if name not in FREE and getattr(scenario, name) != getattr(recorded, name)
        )
        if told:
            raise ScenarioError(
                f"{told}: the trace {self.trace.folder} fixes this. A replay may change "
                f"{', '.join(FREE)}; for anything else record another trace"
            )
        for part, halo in enumerate(manifest.halo_nodes):
            resolve_capacity(scenario.buffer, halo, manifest.remote_nodes(part))
        if self._oracle is not None:
            self._check_oracle(scenario, self._oracle)
        return scenario, controller

    def _check_oracle(self, scenario: Scenario, oracle: Spec) -> None:
        """Told before the replay, which the oracle's own one only follows."""
        build_controller(oracle)
        if "latency_s" in oracle.params:
            raise SpecError(
                f"oracle {str(oracle)!r}: it answers at the latency of the run that is compared "
                "with it; give latency_s to the controller"
            )
        if not _decides_itself(scenario):
            resolve(scenario, oracle)

    def run(self, scenario: Scenario, controller: Spec, options: RunOptions) -> RunResult:
        """Replay under a controller; ``verify`` and the partitions of ``options`` play no part.

        Raises:
            UsageError: as :meth:`check`.
            ControllerError: the controller could not be reset.
            TraceError: the trace is damaged.
        """
        scenario, controller = self.check(scenario, controller)
        resolved = resolve(scenario, controller)
        time = self._make_time(self.trace, resolved.scenario)
        latency_s = None if self._measure_latency else resolved.latency_s or 0.0
        run = ReplayRun(
            self.trace, resolved, time, latency_s, options, self._record_decisions, self._loaded
        )
        run.go()
        result = run.result()
        result = replace(result, summary={**result.summary, **self._beside(run, result)})
        result.save(options.run_dir)
        return result

    def _beside(self, run: ReplayRun, result: RunResult) -> dict[str, Any]:
        """The same run under the oracle, where timing is a controller's at all."""
        fetched = seconds = None
        if self._oracle is not None and not _decides_itself(run.run.scenario):
            resolved = resolve(run.run.scenario, self._oracle)
            latency_s = run.latency_s
            if latency_s is None:
                measured = run.steering.latencies_s
                latency_s = sum(measured) / len(measured) if measured else 0.0
            oracle = ReplayRun(
                self.trace, resolved, run.time, latency_s, run.options, False, self._loaded
            )
            oracle.go()
            summary = oracle.result().summary
            fetched, seconds = summary["fetched"], summary["epoch_seconds"]
        return {
            "timing_oracle_fetched": fetched,
            "timing_oracle_epoch_seconds": seconds,
            "regret_to_timing_oracle": (
                None if fetched is None else ratio(result.summary["fetched"], fetched)
            ),
        }


def _decides_itself(scenario: Scenario) -> bool:
    """Timing is not a controller's at all under this policy."""
    policy: Policy = POLICIES.build(scenario.policy)
    return policy.tags.self_deciding
