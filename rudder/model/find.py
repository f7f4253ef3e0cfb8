"""Models by name: those that are shipped, those in the data directory, or any directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rudder.errors import MissingPathError, UnknownNameError
from rudder.home import Home
from rudder.model.manifest import MANIFEST_FILE
from rudder.spec import Spec


def find_model(text: str, home: Home | None = None) -> Path:
    """The directory that a user means: a path, a name under ``models/``, or a registered name.

    Args:
        home: None = look in no data directory.

    Raises:
        MissingPathError: none of them.
    """
    from rudder.registries import MODELS

    places = [Path(text).expanduser(), *([home.models / text] if home is not None else [])]
    for path in places:
        # The manifest, not the directory: any folder may happen to be named as a model is.
        if (path / MANIFEST_FILE).is_file():
            return path.resolve()
    try:
        MODELS.entry(text)
    except UnknownNameError as error:
        looked = " nor at ".join(str(path.resolve()) for path in places)
        raise MissingPathError(
            f"no model at {looked}, and {error} Fit one with 'rudder fit'."
        ) from error
    shipped: Path = MODELS.build(text)
    return shipped


def locate(controller: Spec, home: Home) -> Spec:
    """A controller's spec with models of the data directory, and other files, as absolute paths.

    So a trainer, which knows no data directory and works elsewhere, finds them; shipped models keep
    their names. A path may also be the name of a directory under ``models/``.

    Raises:
        MissingPathError: a model or file that is nowhere.
    """
    from rudder.registries import CONTROLLERS, MODELS

    full = CONTROLLERS.resolve(controller)
    tags = CONTROLLERS.target(full.name).tags
    params: dict[str, Any] = dict(controller.params)
    model = full.params.get("model")
    if tags.fitted_model and isinstance(model, str) and model:
        folder = find_model(model, home)
        if model not in MODELS or folder != MODELS.build(model):
            params["model"] = str(folder)
    for name in tags.paths:
        if full.params.get(name):
            params[name] = str(_existing(controller, name, full.params[name], home))
    for name in tags.nested:
        if full.params.get(name):
            params[name] = str(locate(Spec.parse(full.params[name]), home))
    return Spec(controller.name, params)


def _existing(controller: Spec, name: str, text: Any, home: Home) -> Path:
    places = [Path(str(text)).expanduser(), home.models / str(text)]
    for path in places:
        if path.exists():
            return path.resolve()
    raise MissingPathError(
        f"{controller.name}: {name} = {text!r} is neither {places[0].resolve()} nor {places[1]}"
    )


def models_of(controller: Spec) -> list[str]:
    """What the ``model`` parameters of a controller's spec and of those nested in it say."""
    from rudder.registries import CONTROLLERS

    full = CONTROLLERS.resolve(controller)
    tags = CONTROLLERS.target(full.name).tags
    own = full.params.get("model")
    found = [own] if tags.fitted_model and own else []
    for name in tags.nested:
        if full.params.get(name):
            found += models_of(Spec.parse(full.params[name]))
    return found
