"""What the loaders of published graphs share: where their files lie, and whether they are them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from rudder.dataset import Graph
from rudder.errors import DatasetError
from rudder.registries import DATASETS

from .download import fetch
from .files import user_path

_log = logging.getLogger(__name__)


def raw_folder(
    name: str,
    from_: str | None,
    yes: bool,
    urls: Callable[[], Sequence[str]],
    markers: Sequence[str],
    aliases: Sequence[str] = (),
) -> Path:
    """The folder that holds the raw files of a graph.

    Args:
        from_: the user's folder; None: download.
        urls: where to download from, asked only if needed.
        markers: files, or patterns of them, of which the raw layout always has one.
        aliases: names of subfolders that may hold the files instead.

    Raises:
        MissingPathError: ``from_`` does not exist.
        DatasetError: none of ``markers`` lies there, or the download failed.
    """
    given = fetch(name, urls(), yes=yes) if from_ is None else user_path(from_, "from", folder=True)
    for folder in (given, *(given / alias for alias in (name, *aliases))):
        if any(any(folder.glob(marker)) for marker in markers):
            return folder
    raise DatasetError(
        f"{given} holds no {' or '.join(markers)} of {name}: give the folder with its raw files "
        "(processed ones, such as data_processed or *.pt, are not read: they are pickles)"
    )


def compared(name: str, graph: Graph) -> Graph:
    """The graph itself, with a warning if it has not the published number of nodes."""
    published = DATASETS.entry(name).fields["nodes"]
    if graph.nodes != published:
        _log.warning(
            "%s has %d nodes, the published %s has %d: this is another graph in the same layout",
            graph.meta["path"], graph.nodes, name, published,
        )  # fmt: skip
    return graph
