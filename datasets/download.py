"""Fetching published files: never a prompt, never a wait without end, nothing half-written."""

from __future__ import annotations

import logging
import shutil
import sys
import zipfile
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from rudder.errors import DatasetError, UsageError
from rudder.home import Home

from .files import reading
from .locks import alone

ASK_ABOVE = 1 << 30
"""Bytes from which on a download must be agreed to (``yes``)."""
TIMEOUT = 30
"""Seconds without an answer or a byte after which a download fails."""
_log = logging.getLogger(__name__)


def downloaded(name: str) -> Path:
    """Where the files of a graph lie or will lie: ``graphs/NAME`` in the data directory."""
    return Home.resolve().graphs / name


def fetch(name: str, urls: Sequence[str], *, yes: bool) -> Path:
    """The folder with the files behind ``urls``, downloaded once; archives are unpacked.

    Args:
        yes: agree to downloads above :data:`ASK_ABOVE`.

    Raises:
        UsageError: a large download that was not agreed to.
        DatasetError: no network, not enough room, or a damaged archive.
    """
    folder = downloaded(name)
    if folder.is_dir():
        return folder
    try:
        with alone(folder.with_name(f".{name}.lock")):
            if not folder.is_dir():  # else another process was faster
                _make(name, urls, folder, yes)
    except OSError as error:
        raise DatasetError(f"{folder} cannot be made: {error}") from error
    return folder


def _make(name: str, urls: Sequence[str], folder: Path, yes: bool) -> None:
    """Fill another folder and rename it as the last step: one of that name is complete."""
    part = folder.with_name(f".{name}.part")
    if part.exists():  # left by a process that was killed: we hold its lock now
        shutil.rmtree(part)
    part.mkdir()
    try:
        for url in urls:
            file = _download(name, url, part, folder, yes)
            if zipfile.is_zipfile(file):
                with reading(file), zipfile.ZipFile(file) as archive:
                    archive.extractall(part)
                file.unlink()
            elif file.suffix == ".zip":
                raise DatasetError(
                    f"{name}: what {url} sent is truncated or no zip archive; try again later, or "
                    f"pass files that you have: --from DIR (in a spec: {name}:from=DIR)"
                )
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _download(name: str, url: str, part: Path, folder: Path, yes: bool) -> Path:
    from rich.console import Console
    from rich.progress import wrap_file

    path = part / url.rpartition("/")[2]
    try:
        with urlopen(url, timeout=TIMEOUT) as answer:
            size = int(answer.headers.get("Content-Length") or 0)
            if size > ASK_ABOVE and not yes:
                raise UsageError(
                    f"{name} is a download of {size / 1e9:.1f} GB to {folder}: agree with --yes "
                    f"(in a spec: {name}:yes=true), or read files you have with --from DIR"
                )
            free = shutil.disk_usage(part).free
            if size > free:
                raise DatasetError(
                    f"{name} needs {size / 1e9:.1f} GB and {folder.parent} has {free / 1e9:.1f} "
                    "GB free; choose another data directory with --home"
                )
            _log.info("downloading %s (%.2f GB) to %s", url, size / 1e9, folder)
            quiet = not sys.stderr.isatty()
            console = Console(stderr=True)
            with (
                path.open("wb") as file,
                wrap_file(answer, size, description=path.name, console=console, disable=quiet)
                as stream,
            ):  # fmt: skip
                shutil.copyfileobj(stream, file, 1 << 20)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DatasetError(
            f"{name} cannot be downloaded from {url}: {reason}. Without a network, get its files "
            f"elsewhere and pass their folder: --from DIR (in a spec: {name}:from=DIR)"
        ) from error
    if size and path.stat().st_size != size:
        raise DatasetError(
            f"{name}: the download from {url} ended after {path.stat().st_size} of {size} bytes; "
            "try again"
        )
    return path
