"""What is compared: controllers as a user names them, made definite."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rudder.errors import UsageError
from rudder.home import Home
from rudder.model import MANIFEST_FILE, find_model, locate, models_of
from rudder.model.calibration import CALIBRATION_FILE
from rudder.registries import CONTROLLERS
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.steering import build_controller, resolve

from .cells import Family

BASELINES = ("none", "static")
LEARNED: tuple[Family, ...] = ("classifier", "llm")
"""Families that stand beside their controls."""


@dataclass(frozen=True)
class Contender:
    """One controller under test.

    Attributes:
        name: as the user wrote it.
        spec: defaults spelled out, files as absolute paths.
        family: what kind of controller.
        content: SHA-256 over what its parameters name or it reads: code of plug-in files, models,
            calibrations, memories, prompt templates.
        seeds: at how many seeds it is run; None = as many as the sweep has.
    """

    name: str
    spec: Spec
    family: Family
    content: str
    seeds: int | None = None


def contender(text: str, home: Home, seeds: int | None = None) -> Contender:
    """The controller that a text means.

    Raises:
        UnknownNameError, SpecError: no such controller (with the nearest name), or parameter.
        MissingPathError: a model or file that is nowhere.
    """
    asked = Spec.parse(text)
    spec = resolve(Scenario.make(), locate(asked, home)).spec
    return Contender(str(asked), spec, family_of(spec), content_of(spec), seeds)


def contenders(texts: Sequence[str], home: Home, fewer: dict[str, int]) -> list[Contender]:
    """All of them, each once.

    Args:
        fewer: number of seeds for those that take fewer, by what the user wrote, or by the name
            of a controller alone, whatever its parameters.

    Raises:
        UsageError: none, one twice, or a number for one that is not there; else as
            :func:`contender`.
    """
    found: list[Contender] = []
    for text in texts:
        one = contender(text, home, fewer.get(text, fewer.get(Spec.parse(text).name)))
        twin = next((other for other in found if other.spec == one.spec), None)
        if twin is not None:
            raise UsageError(f"{one.name!r} is the controller {twin.name!r} again; leave one out")
        found.append(one)
    if not found:
        raise UsageError("no controllers to compare; name some: --controllers static,always,…")
    if unknown := set(fewer) - {*texts, *(Spec.parse(text).name for text in texts)}:
        raise UsageError(
            f"seeds are given for {', '.join(sorted(unknown))}, but the controllers are "
            f"{', '.join(texts)}"
        )
    return found


def family_of(spec: Spec) -> Family:
    """The family of a controller."""
    tags = CONTROLLERS.target(spec.name).tags
    if tags.replay_only:
        return "oracle"
    if tags.llm:
        return "llm"
    if tags.fitted_model:
        return "classifier"
    return "baseline" if spec.name in BASELINES else "heuristic"


def content_of(spec: Spec) -> str:
    """What stands behind a spec's names: another content, another controller."""
    digest = hashlib.sha256(CONTROLLERS.entry(spec.name).target.encode())
    for path in [*fitted_files(spec), *build_controller(spec).reads()]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def fitted_files(spec: Spec) -> list[Path]:
    """Manifests of the models, calibrations and memories that a spec and those in it name."""
    found = [find_model(model) / MANIFEST_FILE for model in models_of(spec)]
    for path in named_paths(spec):
        for name in (CALIBRATION_FILE, "run.json"):
            if (path / name).is_file():
                found.append(path / name)
        if path.is_file():
            found.append(path)
    return found


def named_paths(spec: Spec) -> list[Path]:
    """Files and directories, models aside, that a spec and those in it name."""
    full = CONTROLLERS.resolve(spec)
    tags = CONTROLLERS.target(full.name).tags
    found = [Path(str(full.params[name])) for name in tags.paths if full.params.get(name)]
    for name in tags.nested:
        if full.params.get(name):
            found += named_paths(Spec.parse(full.params[name]))
    return found
