"""Reading Debian's package index: packages, sources and the relations between them.

Only facts are kept: names, sections, priorities, sizes, tags and relations; no description.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from rudder.errors import DatasetError

from .debian_format import RELATIONS, PackageIndex

_OPEN: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    "": lambda path: path.open("rb"),
}
_ALTERNATIVE = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9+.-]*)"  # package
    r"(?::[a-z0-9-]+)?"  # architecture qualifier, as in python3:any
    r"(?:\s*\([^)]*\))?"  # version
    r"(?:\s*\[(?P<architectures>[^]]*)\])?"
    r"(?P<profiles>(?:\s*<[^>]*>)*)\s*$"
)
_ARCHITECTURES = frozenset(
    {"amd64", "any", "all", "linux-any", "any-amd64", "gnu-any-any", "gnu-linux-any"}
)
"""What names the amd64 machine in an architecture restriction."""


@dataclass(frozen=True)
class Package:
    """One paragraph of an index, reduced to what the graph needs."""

    name: str
    source: str
    """Name of the source package; empty for a source itself."""
    fields: Mapping[str, str]


def read_paragraphs(path: Path) -> Iterator[dict[str, str]]:
    """The paragraphs of a Packages or Sources file: plain, .gz, .xz or .bz2.

    Raises:
        DatasetError: it cannot be read, is cut short, or is no such file.
    """
    suffix = path.suffix if path.suffix in (*_OPEN, ".lz4", ".zst") else ""
    if suffix not in _OPEN:
        raise DatasetError(
            f"{path}: {suffix} cannot be read here; unpack it first "
            f"(/usr/lib/apt/apt-helper cat-file {path.name} > FILE)"
        )
    try:
        with _OPEN[suffix](path) as file:
            yield from _paragraphs(file, path)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error


def _paragraphs(file: IO[bytes], path: Path) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    key = ""
    for number, raw in enumerate(file, 1):
        line = raw.decode().rstrip("\r\n")
        if not line:
            if fields:
                yield fields
            fields, key = {}, ""
        elif line[0] in " \t":
            if not key:
                raise DatasetError(f"{path}:{number}: a continuation without a field before it")
            fields[key] += " " + line.strip()
        else:
            key, colon, value = line.partition(":")
            if not colon or not key:
                raise DatasetError(f"{path}:{number}: no 'Field: value' line: {line[:60]!r}")
            fields[key] = value.strip()
    if fields:
        yield fields


def read_packages(path: Path) -> list[Package]:
    """Binary packages, by name; of several versions the last one in the file."""
    found: dict[str, Package] = {}
    for fields in read_paragraphs(path):
        name = _required(fields, "Package", path)
        _required(fields, "Section", path)
        source = fields.get("Source", name).split(" ")[0]
        found[name] = Package(name, source, fields)
    if not found:
        raise DatasetError(f"{path} holds no packages")
    return [found[name] for name in sorted(found)]


def read_sources(path: Path) -> list[Package]:
    """Source packages, by name; those kept only for other packages' sake are left out."""
    found: dict[str, Package] = {}
    for fields in read_paragraphs(path):
        name = _required(fields, "Package", path)
        if fields.get("Extra-Source-Only") != "yes":
            _required(fields, "Section", path)
            found[name] = Package(name, "", fields)
    if not found:
        raise DatasetError(f"{path} holds no sources")
    return [found[name] for name in sorted(found)]


def _required(fields: Mapping[str, str], key: str, path: Path) -> str:
    if not fields.get(key):
        raise DatasetError(
            f"{path}: the paragraph of {fields.get('Package', 'an unnamed package')!r} has no "
            f"field {key}; a Packages or Sources file of an archive has it"
        )
    return fields[key]


def relation_groups(text: str) -> Iterator[list[str]]:
    """The names of each or-group of a relation field that holds on amd64 without build profiles.

    >>> list(relation_groups("libc6 (>= 2.36), mawk | awk:any, wine [i386], dh-python <!nocheck>"))
    [['libc6'], ['mawk', 'awk'], ['dh-python']]
    """
    for group in text.split(","):
        names = []
        for alternative in group.split("|"):
            match = _ALTERNATIVE.match(alternative.strip())
            if match and _holds(match["architectures"], match["profiles"]):
                names.append(match["name"])
        if names:
            yield names


def _holds(architectures: str | None, profiles: str) -> bool:
    if architectures:
        named = architectures.split()
        ours = any(name.lstrip("!") in _ARCHITECTURES for name in named)
        if ours == named[0].startswith("!"):
            return False
    # <a b> <c> means (a and b) or c; no profile is active, so only negated terms hold.
    terms = re.findall(r"<([^>]*)>", profiles)
    return not terms or any(all(t.startswith("!") for t in term.split()) for term in terms)


def build_index(packages: list[Package], sources: list[Package]) -> PackageIndex:
    """The graph of binary packages (first) and source packages, in order of name each.

    An or-group counts by its first alternative that exists; a virtual package stands for the first
    of its providers by name. Relations to packages outside the index are left out.
    """
    number = {package.name: index for index, package in enumerate(packages)}
    source_number = {package.name: len(packages) + index for index, package in enumerate(sources)}
    virtual: dict[str, int] = {}
    for index, package in enumerate(packages):
        for names in relation_groups(package.fields.get("Provides", "")):
            virtual.setdefault(names[0], index)

    def targets(fields: Mapping[str, str], *keys: str) -> set[int]:
        found = set()
        for key in keys:
            for names in relation_groups(fields.get(key, "")):
                real = (number.get(name, virtual.get(name)) for name in names)
                found.add(next((target for target in real if target is not None), -1))
        return found - {-1}

    pairs: dict[str, list[tuple[int, int]]] = {relation: [] for relation in RELATIONS}
    for index, package in enumerate(packages):
        for relation, keys in {
            "depends": ("Pre-Depends", "Depends"),
            "recommends": ("Recommends",),
        }.items():
            pairs[relation] += ((index, to) for to in targets(package.fields, *keys))
        if package.source in source_number:
            pairs["built-from"].append((index, source_number[package.source]))
    for package in sources:
        needed = targets(
            package.fields, "Build-Depends", "Build-Depends-Arch", "Build-Depends-Indep"
        )
        pairs["build-depends"] += ((source_number[package.name], to) for to in needed)
    nodes = [*packages, *sources]
    sections = [package.fields["Section"].rpartition("/")[2] for package in nodes]
    tags = [_tags(package.fields.get("Tag", "")) for package in nodes]
    section_names, section = np.unique(sections, return_inverse=True)
    priority_names, priority = np.unique(
        [package.fields.get("Priority", "") if package.source else "" for package in nodes],
        return_inverse=True,
    )
    tag_names = sorted({tag for several in tags for tag in several})
    tag_number = {tag: index for index, tag in enumerate(tag_names)}
    tag_lists = [sorted(tag_number[tag] for tag in several) for several in tags]
    return PackageIndex(
        names=tuple(package.name for package in nodes),
        binaries=len(packages),
        section_names=tuple(section_names.tolist()),
        section=section.astype(np.uint8),
        priority_names=tuple(priority_names.tolist()),
        priority=priority.astype(np.uint8),
        tag_names=tuple(tag_names),
        tag_counts=np.array([len(several) for several in tag_lists], np.uint8),
        tags=np.array([tag for several in tag_lists for tag in several], np.uint16),
        size=np.array([_size(package) for package in nodes], np.int64),
        installed_size=np.array(
            [
                _whole(package, "Installed-Size", package.fields.get("Installed-Size", "0"))
                for package in nodes
            ],
            np.int64,
        ),
        any_architecture=np.array(
            [package.fields.get("Architecture") != "all" for package in nodes]
        ),
        multi_arch=np.array([bool(package.fields.get("Multi-Arch")) for package in nodes]),
        relations={
            relation: np.array(sorted(set(found)), np.int64).reshape(-1, 2)
            for relation, found in pairs.items()
        },
    )


def _tags(text: str) -> set[str]:
    return {tag.strip() for tag in text.split(",") if tag.strip()}


def _size(package: Package) -> int:
    """Bytes to download: the .deb, or the files of a source."""
    if package.source:
        return _whole(package, "Size", package.fields.get("Size", "0"))
    files = package.fields.get("Files", "").split()
    return sum(_whole(package, "Files", size) for size in files[1::3])


def _whole(package: Package, field: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise DatasetError(
            f"{package.name}: {field} must hold whole numbers, found {text!r}; get the index again"
        ) from error
