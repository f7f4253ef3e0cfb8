"""From a controller spec to a steered trainer: fixed scenario fields, timing, building.

Every controller's spec may hold, beside the controller's own parameters, ``deadline_s`` (seconds
after which an open question counts as a timeout) and ``latency_s`` (seconds that an answer takes on
a replay's modelled clock). They belong to steering and never reach the constructor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rudder.controller import Capabilities, Controller
from rudder.errors import PairingError, ReplayOnlyError, SpecError
from rudder.observation import Task
from rudder.plugins import PluginFile
from rudder.policies.base import Policy
from rudder.registries import CONTROLLERS, POLICIES
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.steering.asker import ThreadAsker
from rudder.steering.loop import Steering
from rudder.steering.process import ProcessController
from rudder.steering.resuming import Earlier
from rudder.steering.served import ServedController
from rudder.steering.service import ControllerService

TIMING = ("deadline_s", "latency_s")
UNHEARD = "always"
"""The controller that goes with policies that decide themselves."""


class Resolved(NamedTuple):
    """A controller spec made definite.

    Attributes:
        scenario: with the fields that the controller fixes laid over.
        spec: with every default spelled out, timing parameters included where given.
        tags: capabilities of the controller.
        deadline_s: seconds after which an open question counts as a timeout.
        latency_s: modelled seconds per answer; None = not given.
    """

    scenario: Scenario
    spec: Spec
    tags: Capabilities
    deadline_s: float
    latency_s: float | None


def resolve(scenario: Scenario, spec: str | Spec | Mapping[str, Any]) -> Resolved:
    """Check a controller spec and lay the fields that its controller fixes over a scenario.

    Raises:
        UnknownNameError, SpecError: no such controller, parameter or value.
        ScenarioError: the fixed fields do not fit the scenario.
        PairingError: the policy decides itself, and the controller wants to.
    """
    full = CONTROLLERS.resolve(spec)
    tags = build_controller(full).tags
    timing = _timing(full)
    fixed = fixed_fields(full)
    if fixed:
        scenario = scenario.change(**fixed)
    _check_pair(scenario, full)
    return Resolved(
        scenario,
        full,
        tags,
        timing.get("deadline_s", tags.deadline_s),
        timing.get("latency_s"),
    )


def _check_pair(scenario: Scenario, spec: Spec) -> None:
    """Refuse a controller that nobody would listen to.

    A policy that never replaces goes with every controller: what it is told changes nothing.
    """
    if spec.name == UNHEARD or scenario.buffer == 0:
        return
    policy: Policy = POLICIES.build(scenario.policy)
    if policy.tags.self_deciding:
        raise PairingError(
            f"policy {scenario.policy!r} decides itself at every minibatch, so it would not hear "
            f"the controller {spec.name!r}. Use it with the controller {UNHEARD!r}, or give "
            f"{spec.name!r} a policy that listens, such as 'score' (see: rudder policies)"
        )


def fixed_fields(spec: Spec) -> dict[str, Any]:
    """The scenario fields that a resolved spec fixes.

    Text may hold parameters in braces: ``policy = "massivegnn:interval={interval}"``.

    Raises:
        SpecError: a parameter in braces that the spec does not have.
    """
    entry = CONTROLLERS.entry(spec.name)
    try:
        return {
            field: value.format_map(spec.params) if isinstance(value, str) else value
            for field, value in entry.fields.items()
        }
    except (KeyError, ValueError) as error:
        raise SpecError(f"{entry.origin}: fields name no parameter of the spec: {error}") from error


def build_controller(spec: str | Spec | Mapping[str, Any]) -> Controller:
    """Build a controller from its spec, timing parameters left out.

    Raises:
        UnknownNameError, SpecError: no such controller, parameter or value.
    """
    full = CONTROLLERS.resolve(spec)
    _timing(full)
    controller: Controller = CONTROLLERS.build(own_params(full))
    return controller


def steer(
    spec: str | Spec | Mapping[str, Any],
    task: Task,
    *,
    mode: Literal["async", "sync"] = "async",
    plugins: Sequence[PluginFile] = (),
    decisions_path: Path | None = None,
    service: Path | None = None,
    earlier: Earlier | None = None,
) -> Steering:
    """Build and reset a controller, in a thread or in another process, and steer with it.

    Args:
        spec: controller spec.
        task: the trainer's static facts, seed and rank.
        mode: does a pull wait for the open question?
        plugins: plug-in files that a process of its own loads too.
        decisions_path: where decisions are appended; None = nowhere.
        service: socket of the process that serves this host's trainers; None = there is none.
        earlier: go on where an earlier process of the run stood; an agent is not asked again.

    Raises:
        UnknownNameError, SpecError: no such controller, parameter or value.
        ReplayOnlyError: the controller needs a recorded trace.
        ControllerError: the controller could not be reset.
        ResultError: ``decisions_path`` cannot be written.
    """
    full = CONTROLLERS.resolve(spec)
    controller = build_controller(full)
    check_for_training(full, controller.tags)
    deadline_s = _timing(full).get("deadline_s", controller.tags.deadline_s)
    placed = place(full, controller, plugins, service)
    interrupt = placed.kill if isinstance(placed, ProcessController | ServedController) else None
    asker = ThreadAsker(placed, interrupt=interrupt)
    return Steering(
        asker, task, mode=mode, deadline_s=deadline_s, decisions_path=decisions_path,
        earlier=earlier, ask_again=not controller.tags.llm,
    )  # fmt: skip


def place(
    spec: Spec,
    controller: Controller,
    plugins: Sequence[PluginFile],
    service: Path | None = None,
) -> Controller:
    """A built controller, or one that stands for it in another process if it wants one."""
    if controller.tags.shared and service is not None:
        return ServedController(
            service, own_params(spec), plugins, answer_timeout_s=_hangs_after_s(spec, controller)
        )
    if not controller.tags.own_process:
        return controller
    return ProcessController(
        own_params(spec), plugins, answer_timeout_s=_hangs_after_s(spec, controller)
    )


@contextmanager
def serve(
    spec: Spec,
    plugins: Sequence[PluginFile],
    log: Path,
    progress: Callable[[str, float], None],
) -> Iterator[ControllerService | None]:
    """The process that serves a host's trainers, where the controller wants one; else None.

    Raises:
        ControllerError: what the controllers share could not be loaded.
    """
    controller = build_controller(spec)
    if not controller.tags.shared:
        yield None
        return
    with ControllerService(
        own_params(spec),
        plugins,
        log=log,
        progress=progress,
        answer_timeout_s=_hangs_after_s(spec, controller),
    ) as service:
        yield service


def _hangs_after_s(spec: Spec, controller: Controller) -> float:
    """Past its deadline an answer is worthless, but the next one may come in time: a process is
    taken to hang only well after that."""
    return 3 * _timing(spec).get("deadline_s", controller.tags.deadline_s)


def check_for_training(spec: Spec, tags: Capabilities) -> None:
    """Refuse a controller that cannot steer real training.

    Raises:
        ReplayOnlyError: it needs a recorded trace.
    """
    if tags.replay_only:
        raise ReplayOnlyError(
            f"controller {spec.name!r} needs a recorded trace, and real training has none; use it "
            "with 'rudder replay TRACE', or train with another controller"
        )


def own_params(spec: Spec) -> Spec:
    """The spec without the timing parameters, as the constructor takes it."""
    return Spec(spec.name, {k: v for k, v in spec.params.items() if k not in TIMING})


def _timing(spec: Spec) -> dict[str, float]:
    found = {}
    for name in TIMING:
        if name not in spec.params:
            continue
        value = spec.params[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if (
            not number
            or not math.isfinite(value)
            or value < 0
            or (name == "deadline_s" and not value)
        ):
            raise SpecError(
                f"controller {spec.name!r}: {name} must be a number of seconds "
                f"{'above' if name == 'deadline_s' else 'from'} 0, found {value!r}"
            )
        found[name] = float(value)
    return found
