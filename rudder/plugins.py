"""Finding and loading plug-ins: installed ones by entry point, single files by path.

An entry point in the group ``rudder.plugins`` names a module; importing it registers its names.
``--plugin FILE.py`` does the same for one file, which travels with a job by its hash.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import SourceLoader
from importlib.metadata import entry_points
from pathlib import Path

from rudder.errors import MissingPathError, PluginError, RudderError

GROUP = "rudder.plugins"
_log = logging.getLogger(__name__)
_lock = threading.RLock()  # a plug-in may look something up while it is being loaded
_loaded = False
_clash: RudderError | None = None
broken: dict[str, str] = {}
"""Installed plug-ins that failed to import: name -> reason (shown by ``rudder doctor``)."""


def load_installed() -> None:
    """Import every installed plug-in once.

    A third party's plug-in that fails to import is skipped with a warning, so that one broken
    package does not take the tool away; a name clash is raised, at every call.
    """
    global _loaded, _clash
    with _lock:
        if _clash is not None:
            raise _clash
        if _loaded:
            return
        _loaded = True
        for point in sorted(entry_points(group=GROUP), key=lambda p: p.name):
            try:
                importlib.import_module(point.value)
            except RudderError as error:
                _clash = error
                raise
            except Exception as error:  # noqa: BLE001 - a third party's module may raise anything
                reason = f"{type(error).__name__}: {error}"
                broken[point.name] = reason
                _log.warning("plug-in %s (%s) is left out: %s", point.name, point.value, reason)


def packages() -> set[str]:
    """Names of the packages that bring installed plug-ins, Rudder's own among them."""
    return {"rudder", *(point.module.partition(".")[0] for point in entry_points(group=GROUP))}


@dataclass(frozen=True)
class PluginFile:
    """A plug-in file and the SHA-256 of its content when the job was made."""

    path: str
    sha256: str


class _Content(SourceLoader):
    """Executes the bytes that were hashed, whatever the file holds by then."""

    def __init__(self, path: str, content: bytes) -> None:
        self._path = path
        self._content = content

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str | bytes) -> bytes:
        return self._content


def load_file(path: Path, sha256: str | None = None) -> PluginFile:
    """Load one plug-in file; twice the same content is loaded once.

    Raises:
        MissingPathError: there is no such file.
        PluginError: unreadable, changed since ``sha256`` was taken, or failing to import.
    """
    path = path.resolve()
    if path.suffix != ".py":
        raise PluginError(f"plug-in {path} is no Python file; it must end in .py")
    if not path.is_file():
        raise MissingPathError(f"there is no plug-in file {path}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PluginError(f"plug-in {path} cannot be read: {error.strerror}") from error
    digest = hashlib.sha256(content).hexdigest()
    if sha256 is not None and digest != sha256:
        raise PluginError(
            f"plug-in {path} changed since the job was made (expected SHA-256 {sha256[:12]}…, "
            f"found {digest[:12]}…); start the job again"
        )
    name = f"rudder_plugin_{digest[:16]}"
    if name not in sys.modules:
        loader = _Content(str(path), content)
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        if spec is None:
            raise PluginError(f"plug-in {path} cannot be loaded as a module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            loader.exec_module(module)
        except RudderError:
            del sys.modules[name]
            raise
        except Exception as error:
            del sys.modules[name]
            raise PluginError(f"plug-in {path} failed: {type(error).__name__}: {error}") from error
    return PluginFile(str(path), digest)


def load_files(plugins: Sequence[PluginFile]) -> None:
    """Load the plug-in files of a job, each checked against its hash."""
    for plugin in plugins:
        load_file(Path(plugin.path), plugin.sha256)
