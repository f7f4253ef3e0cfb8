"""The model store: a directory per model, written whole or not at all; and which there are."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from rudder.errors import ModelError, PathTakenError, SpecError
from rudder.home import Home
from rudder.model import MANIFEST_FILE, Estimator, ModelManifest, sha256
from rudder.registries import MODELS

SHIPPED = Path(__file__).parent / "models"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_name(name: str) -> None:
    """Refuse a name that cannot be a directory, a registry's name and part of a spec at once.

    Raises:
        SpecError: says which characters may stand in one.
    """
    if not _NAME.fullmatch(name):
        raise SpecError(
            f"a model cannot be named {name!r}: letters, digits, '.', '_' and '-', the first a "
            "letter or digit"
        )


def check_free(folder: Path, estimator: str, *, force: bool = False) -> None:
    """Refuse to write a model where something else lies.

    A model of the same name and kind of estimator is what fitting again replaces; another kind goes
    only by ``force``, and what is no model not at all.

    Raises:
        PathTakenError: says what lies there.
    """
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_symlink() or not (folder / MANIFEST_FILE).is_file():
        empty = folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
        if not empty:
            raise PathTakenError(
                f"{folder} is no model; it is not replaced: choose another --name or --out"
            )
        return
    if force:
        return
    try:
        found = ModelManifest.read(folder)
    except ModelError as error:
        raise PathTakenError(
            f"{folder} holds a model that cannot be read ({error}); replace it with --force, or "
            "choose another --name"
        ) from error
    if found.name != folder.name or found.spec.name != estimator:
        raise PathTakenError(
            f"{folder} holds the model {found.name!r}, fitted by {found.spec.name!r}; replace it "
            "with --force, or choose another --name"
        )


def write(
    folder: Path,
    estimator: Estimator,
    describe: Callable[[dict[str, str]], ModelManifest],
    verify: Callable[[Path], None],
) -> ModelManifest:
    """Write a model's directory: complete, on disk and proven readable before it appears.

    Args:
        folder: where it goes; what lies there is replaced, so :func:`check_free` comes first.
        estimator: fitted.
        describe: makes the manifest of the files' SHA-256 by name.
        verify: reads the directory, at its temporary place, and raises if it is not right.

    Raises:
        ModelError: the estimator wrote other files than it names, or :func:`verify` says so.
        PathTakenError: somebody else wrote there meanwhile.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        scratch.chmod(0o755)  # mkdtemp's 0700 would keep a team out
        estimator.save(scratch)
        found = {path.relative_to(scratch).as_posix() for path in scratch.rglob("*")}
        if found != set(estimator.files):
            raise ModelError(
                f"{type(estimator).__name__} names the files {', '.join(estimator.files)}, but "
                f"wrote {', '.join(sorted(found)) or 'none'}"
            )
        manifest = describe({name: sha256(scratch / name) for name in sorted(found)})
        manifest.write(scratch)
        verify(scratch)
        for path in [*scratch.iterdir(), scratch]:
            _sync(path)
        _move(scratch, folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # gone already when all went well
    return manifest


def _move(new: Path, folder: Path) -> None:
    """Put ``new`` in the place of ``folder``; a stop in between leaves the old one beside."""
    old = None
    if folder.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".old", dir=folder.parent))
        folder.rename(old)  # onto an empty directory
    try:
        new.rename(folder)
    except OSError as error:
        if old is not None and not folder.exists():
            old.rename(folder)
        raise PathTakenError(f"{folder} was written by somebody else meanwhile") from error
    if old is not None:
        shutil.rmtree(old)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def size(folder: Path) -> int:
    """Bytes of all files of a model."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _same_minor(version: Version) -> str:
    return f"=={version.major}.{version.minor}.*"


def _from_here_on(version: Version) -> str:
    return f">={version.major}.{version.minor}"


def _scikit_learn(version: Version) -> str:
    """No promise across minor versions, but a trial.

    What 1.9.1 wrote (``logistic``, ``svm`` of both kernels, ``forest``) answered bit for bit the
    same in 1.7.2, which Python 3.10 is limited to, in 1.8.0 and in 1.9.1.
    """
    tried = Version("1.7") <= version < Version("1.10")
    return ">=1.7,<1.10" if tried else _same_minor(version)


_CLAIMED: dict[str, Callable[[Version], str]] = {
    "scikit-learn": _scikit_learn,
    # A network's layers are looked up by name in the library's own classes.
    "pytorch-tabnet": _same_minor,
    # A file names the oldest protocol that reads it; younger releases read older ones.
    "skops": _from_here_on,
    # Models in JSON are promised to load in later versions, not in earlier ones.
    "xgboost": _from_here_on,
    # Plain tensors, and a format that has not changed.
    "torch": lambda version: f">=2,<{version.major + 1}",
    "safetensors": lambda version: ">=0.4,<1",
}


def compatible(library: str, version: str) -> str:
    """The versions of a library that can read what this one wrote, as a specifier.

    No wider than the library's own promise for the format; without one, the same minor version.
    """
    return _CLAIMED.get(library, _same_minor)(Version(version))


def shipped(name: str) -> Path:
    """The directory of a model that comes with the package; what the registry builds.

    Raises:
        ModelError: it is gone.
    """
    folder = SHIPPED / name
    if not (folder / MANIFEST_FILE).is_file():
        raise ModelError(
            f"the model {name!r} that ships with Rudder is missing: no {folder / MANIFEST_FILE}; "
            "install Rudder anew, or fit one with 'rudder fit'"
        )
    return folder


@dataclass(frozen=True)
class Stored:
    """One model that there is.

    Attributes:
        name: what users write.
        folder: where it lies; None if it is gone.
        place: ``home`` or ``shipped``.
        manifest: None if it cannot be used.
        problem: why not; "" else.
    """

    name: str
    folder: Path | None
    place: str
    manifest: ModelManifest | None
    problem: str = ""


def stored(home: Home) -> Iterator[Stored]:
    """All models by name: those of the data directory, then shipped ones.

    A shipped one whose name the data directory has too is not what that name means, but is told.
    """
    for path in sorted(home.models.glob(f"[!.]*/{MANIFEST_FILE}")):
        yield _look(path.parent.name, path.parent, "home")
    for name in MODELS.names():
        try:
            yield _look(name, MODELS.build(name), "shipped")
        except ModelError as error:
            yield Stored(name, None, "shipped", None, str(error))


def _look(name: str, folder: Path, place: str) -> Stored:
    try:
        return Stored(name, folder, place, ModelManifest.read(folder))
    except ModelError as error:
        return Stored(name, folder, place, None, str(error))
