"""Refuses a suite that asks for what a model under test has seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rudder.errors import LeakError
from rudder.model import MANIFEST_FILE, ModelManifest, Training
from rudder.model.calibration import CALIBRATION_FILE, Calibration
from rudder.model.leak import Fitted, leaks
from rudder.result import RunResult
from rudder.spec import Spec
from rudder.suite import Suite

from .contenders import Contender, fitted_files, named_paths


@dataclass(frozen=True)
class Memory:
    """An earlier run that a controller remembers."""

    name: str
    training: Training


def fitted(spec: Spec) -> list[Fitted]:
    """Models, calibrations and memories of a controller.

    What a remembered run had itself learned from counts as remembered, too: it shaped the decisions
    that the memory holds.

    Raises:
        ModelError, ResultError: one that is damaged.
        LeakError: a remembered run had learned from what is no longer there, so that nobody can
            tell what it has seen.
    """
    found: list[Fitted] = []
    for path in fitted_files(spec):
        if path.name == MANIFEST_FILE:
            found.append(ModelManifest.read(path.parent))
        elif path.name == CALIBRATION_FILE:
            found.append(Calibration.read(path.parent))
        elif path.name == "run.json":
            run = RunResult.load(path.parent)
            found.append(_memory(run))
            for gone in (one for one in named_paths(run.controller) if not one.exists()):
                raise LeakError(
                    f"{path.parent} is the memory of a run of {run.controller}, which had learned "
                    f"from {gone}; that is not there any more, so nobody can tell what it has "
                    "seen. Put it back, or take the memory of another run"
                )
            found += fitted(run.controller)
    return found


def _memory(run: RunResult) -> Memory:
    name = f"memory of {run.summary.get('run_id')}"
    scenario = run.scenario
    traces = tuple(str(run.details[key]) for key in ("trace_id",) if run.details.get(key))
    training = Training(
        suite="", suite_digest="", scenarios={name: scenario.change(seed=0).digest()},
        graphs=(scenario.graph,), traces=traces, seeds=(scenario.seed,), collection="", label="",
        examples={},
    )  # fmt: skip
    return Memory(name, training)


def check_leaks(
    suite: Suite,
    contenders: Sequence[Contender],
    seeds: Iterable[int],
    traces: Iterable[str] = (),
) -> None:
    """Refuse what would flatter a controller.

    Args:
        seeds: at which the suite is run.
        traces: ids of the access traces that it is run on.

    Raises:
        LeakError: a line for each scenario or trace that was seen.
        ModelError, ResultError: a model, calibration or memory that is damaged.
    """
    seeds, traces = list(seeds), list(traces)
    found = [
        f"{one.name}: {line}"
        for one in contenders
        for thing in fitted(one.spec)
        for line in leaks(thing, suite, seeds=seeds, traces=traces)
    ]
    if found:
        told = "".join(f"\n  {line}" for line in dict.fromkeys(found))
        raise LeakError(
            f"suite {suite.name!r} asks for what was seen in training:{told}\nLeave these "
            "scenarios out (--scenarios, --splits), take other seeds (--first-seed), or fit the "
            "model to something else"
        )
