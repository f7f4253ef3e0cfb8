"""Checkpoints on disk: one at the end of every epoch, of which every rank keeps its part.

A rank's part are two files below ``epoch=E``. ``rank=R.npz`` holds what changes as a whole: model,
optimizer, buffer, steering, random state. ``rank=R.tail.npz`` holds what has only grown since the
checkpoint before: rows of the minibatch table, lines of the journal. So an epoch costs the same
however many there were; of the former the last two are kept, of the latter all, and the fact
``tails`` says which belong to a checkpoint. Each file is written beside,
flushed to the disk and renamed; arrays are NumPy's own format without pickles, all else is JSON.

Buffered feature rows are not in it: features do not change in a run, so they are pulled again as
they were, and cost a checkpoint more than all the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import CheckpointError

VERSION = 1
FOLDER = "checkpoints"
"""Where they lie in a run's directory."""
KEPT = 2
"""Checkpoints that are kept: while one is written, another must be whole."""
_FACTS = "facts"
_DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Part:
    """Named arrays, and facts as JSON has them."""

    arrays: Arrays
    facts: Mapping[str, Any]

    def below(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays whose names begin with ``prefix.``, by the rest of their names."""
        start = prefix + "."
        return {k.removeprefix(start): v for k, v in self.arrays.items() if k.startswith(start)}


def state_path(folder: Path, epoch: int, rank: int) -> Path:
    return folder / f"epoch={epoch}" / f"rank={rank}.npz"


def tail_path(folder: Path, epoch: int, rank: int) -> Path:
    return folder / f"epoch={epoch}" / f"rank={rank}.tail.npz"


def write(path: Path, part: Part) -> int:
    """Write a file whole or not at all; returns its bytes.

    Raises:
        OSError: the disk refuses; nothing is left of it.
        ValueError: an array of objects, which would be pickled.
    """
    # Beside the folder: what lies inside is whole, whoever copies it.
    beside = _beside(path.parent.parent)
    beside.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = beside / f"{path.parent.name}-{path.name}"
    facts = np.frombuffer(json.dumps({"version": VERSION, **part.facts}).encode(), np.uint8)
    try:
        with made.open("wb") as file:
            # Not by np.savez, which leaves an archive open if the disk refuses.
            with zipfile.ZipFile(file, "w") as archive:
                for name, array in {**part.arrays, _FACTS: facts}.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.save(member, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        made.replace(path)
        _sync(path.parent)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    return size


def read(path: Path) -> Part:
    """Read a file that :func:`write` wrote; damage to any byte of it is found.

    Raises:
        CheckpointError: it is missing, damaged, or of another version.
    """
    facts = _facts(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            return Part({name: file[name] for name in file.files if name != _FACTS}, facts)
    except _DAMAGE as error:
        raise _damaged(path, error) from error


def _facts(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            facts: dict[str, Any] = json.loads(file[_FACTS].tobytes())
        version = facts.pop("version")
    except _DAMAGE as error:
        raise _damaged(path, error) from error
    if version != VERSION:
        raise CheckpointError(f"{path} has version {version}, this Rudder reads {VERSION}")
    return facts


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path} is no whole part of a checkpoint: {error}")


def last_complete(folder: Path, ranks: int) -> int | None:
    """The last epoch of which every rank's part is whole, with all that came before; or None."""
    for epoch in sorted(_epochs(folder), reverse=True):
        try:
            needed = [path for rank in range(ranks) for path in files(folder, epoch, rank)]
        except CheckpointError:
            continue
        if all(map(_whole, needed)):
            return epoch
    return None


def clear(folder: Path, after: int | None, ranks: range) -> None:
    """Remove what these ranks kept of later epochs than ``after`` (None = of all)."""
    for epoch in _epochs(folder):
        if after is None or epoch > after:
            for rank in ranks:
                tail_path(folder, epoch, rank).unlink(missing_ok=True)
            _drop(folder, epoch, ranks)


def keep_last(folder: Path, epochs: list[int], ranks: range) -> None:
    """Remove these ranks' states of all but the last of some complete epochs."""
    for epoch in _epochs(folder):
        if epoch not in epochs[-KEPT:]:
            _drop(folder, epoch, ranks)


def remove(folder: Path) -> None:
    """Remove all of a run's checkpoints."""
    for each in (folder, _beside(folder)):
        shutil.rmtree(each, ignore_errors=True)


def files(folder: Path, epoch: int, rank: int) -> list[Path]:
    """All that a rank needs to go on after an epoch: its state, then the tails in order.

    Raises:
        CheckpointError: as by :func:`read`.
    """
    state = state_path(folder, epoch, rank)
    tails = [tail_path(folder, each, rank) for each in _facts(state)["tails"]]
    return [state, *tails]


def _beside(folder: Path) -> Path:
    return folder.with_name(folder.name + ".part")


def _drop(folder: Path, epoch: int, ranks: range) -> None:
    for rank in ranks:
        state_path(folder, epoch, rank).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # others' parts lie there, or tails
        (folder / f"epoch={epoch}").rmdir()


def _epochs(folder: Path) -> list[int]:
    found = [path.name.removeprefix("epoch=") for path in folder.glob("epoch=*")]
    return sorted(int(number) for number in found if number.isdigit())


def _whole(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except _DAMAGE:
        return False


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
