"""The compact file of the bundled graph: an uncompressed ``.npz`` of plain arrays, then xz."""

from __future__ import annotations

import io
import lzma
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import DatasetError

FORMAT_VERSION = 1
RELATIONS = ("depends", "recommends", "build-depends", "built-from")
"""From a package to what it depends on (Pre-Depends too) and recommends, from a source to what
builds it, and from a binary package to its source."""

_TEXTS = ("names", "section_names", "priority_names", "tag_names")
_ARRAYS = (
    "section", "priority", "tag_counts", "tags", "size", "installed_size", "any_architecture",
    "multi_arch",
)  # fmt: skip
_PLANES = 4


@dataclass(frozen=True)
class PackageIndex:
    """Facts of a package index. Nodes: binary packages, then source packages, each by name.

    Attributes:
        names: ``N`` names; a binary package and a source may share one.
        binaries: number of binary packages.
        section, priority: uint8 ``[N]``, into ``section_names`` and ``priority_names``.
        tag_counts: uint8 ``[N]``; ``tags``: uint16, the tags of all nodes one after another, into
            ``tag_names``.
        size: int64 ``[N]``, bytes to download; ``installed_size``: int64 ``[N]``, KiB, 0 = unknown.
        any_architecture, multi_arch: bool ``[N]``: built per architecture; has ``Multi-Arch``.
        relations: for each of :data:`RELATIONS` int64 ``[R, 2]``, ascending pairs from, to.
    """

    names: tuple[str, ...]
    binaries: int
    section_names: tuple[str, ...]
    section: npt.NDArray[np.uint8]
    priority_names: tuple[str, ...]
    priority: npt.NDArray[np.uint8]
    tag_names: tuple[str, ...]
    tag_counts: npt.NDArray[np.uint8]
    tags: npt.NDArray[np.uint16]
    size: npt.NDArray[np.int64]
    installed_size: npt.NDArray[np.int64]
    any_architecture: npt.NDArray[np.bool_]
    multi_arch: npt.NDArray[np.bool_]
    relations: Mapping[str, npt.NDArray[np.int64]]

    @property
    def nodes(self) -> int:
        return len(self.names)


def save_index(index: PackageIndex, path: Path) -> None:
    """Write the index; the same index gives the same bytes (with the same liblzma).

    Raises:
        DatasetError: counts that the format does not hold, or the disk refuses.
    """
    arrays: dict[str, npt.NDArray[Any]] = {
        "version": np.array([FORMAT_VERSION]),
        "binaries": np.array([index.binaries]),
    }
    for name in _TEXTS:
        arrays[name] = np.frombuffer("\n".join(getattr(index, name)).encode(), np.uint8)
    for name in _ARRAYS:
        array = getattr(index, name)
        arrays[name] = _planes(array) if array.dtype == np.int64 else array
    for relation in RELATIONS:
        pairs = index.relations[relation]
        arrays[f"{relation}.counts"] = _planes(np.bincount(pairs[:, 0], minlength=index.nodes))
        arrays[f"{relation}.steps"] = _planes(_steps(pairs))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
    content = lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME)
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise DatasetError(f"{path} cannot be written: {error.strerror}") from error


def load_index(path: Path) -> PackageIndex:
    """Read what :func:`save_index` wrote.

    Raises:
        DatasetError: missing, damaged, or of another version; names the file.
    """
    try:
        data = np.load(io.BytesIO(lzma.decompress(path.read_bytes())), allow_pickle=False)
        arrays = {name: data[name] for name in data.files}
        if int(arrays["version"][0]) != FORMAT_VERSION:
            raise DatasetError(
                f"{path} has format version {arrays['version'][0]}, this Rudder reads "
                f"{FORMAT_VERSION}; make it again with 'rudder convert-debian'"
            )
        read = {name: tuple(arrays[name].tobytes().decode().split("\n")) for name in _TEXTS}
        nodes = len(read["names"])
        wrong = [name for name in _ARRAYS if name != "tags" and arrays[name].shape[-1] != nodes]
        if wrong:
            raise ValueError(f"{', '.join(wrong)} do not fit {nodes} names")
        return PackageIndex(
            names=read["names"],
            binaries=int(arrays["binaries"][0]),
            section_names=read["section_names"],
            section=arrays["section"],
            priority_names=read["priority_names"],
            priority=arrays["priority"],
            tag_names=read["tag_names"],
            tag_counts=arrays["tag_counts"],
            tags=arrays["tags"],
            size=_counts(arrays["size"]),
            installed_size=_counts(arrays["installed_size"]),
            any_architecture=arrays["any_architecture"],
            multi_arch=arrays["multi_arch"],
            relations={
                relation: _pairs(
                    _counts(arrays[f"{relation}.counts"]), _counts(arrays[f"{relation}.steps"])
                )
                for relation in RELATIONS
            },
        )
    except (OSError, lzma.LZMAError, zipfile.BadZipFile, ValueError, KeyError) as error:
        raise DatasetError(f"{path} is missing or damaged: {error}") from error


def _steps(pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The second column; within a run of equal first ones, as differences to the one before."""
    steps = pairs[:, 1].copy()
    same = np.flatnonzero(pairs[1:, 0] == pairs[:-1, 0]) + 1
    steps[same] = pairs[same, 1] - pairs[same - 1, 1]
    return steps


def _pairs(counts: npt.NDArray[np.int64], steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    total = np.cumsum(steps)
    starts = np.cumsum(counts) - counts
    used = counts > 0
    before = np.zeros(counts.size, np.int64)
    before[used] = total[starts[used]] - steps[starts[used]]
    first = np.repeat(np.arange(counts.size), counts)
    return np.stack([first, total - before[first]], axis=1)


def _planes(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Counts below 2^32 as four rows of bytes, lowest first: compresses far better than int32."""
    if values.size and not 0 <= values.min() <= values.max() < 2**32:
        raise DatasetError(f"cannot store counts from {values.min()} to {values.max()}")
    return np.ascontiguousarray(values.astype("<u4").view(np.uint8).reshape(-1, _PLANES).T)


def _counts(planes: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(planes.T).view("<u4").reshape(-1).astype(np.int64)
