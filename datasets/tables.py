"""Text tables as users meet them: edge lists, label files, split files.

Commas, semicolons, tabs or spaces; ``#`` and ``%`` comment lines; CRLF; blank lines; an optional
header line; gzip by content.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rudder.errors import DatasetError, UsageError

from .files import open_bytes, open_text, reading

COMMENTS = ("#", "%")
CHUNK = 1 << 22
"""Numbers parsed at a time, to bound memory."""
Column = int | str


@dataclass(frozen=True)
class Layout:
    """How a text table is written.

    Attributes:
        separator: for pandas: one character, or a pattern for runs of blanks.
        comment: the character that starts a comment line.
        header: column names, or None where the first line is data.
        width: number of columns.
        declared: rows that a SNAP comment (``# Nodes: 5 Edges: 7``) announces, or None.
    """

    separator: str
    comment: str
    header: tuple[str, ...] | None
    width: int
    declared: int | None


def sniff(path: Path) -> Layout:
    """Look at the first lines of a table.

    Raises:
        DatasetError: missing, truncated, binary, or without any row.
    """
    with reading(path), open_bytes(path) as file:
        if b"\0" in file.read(4096):
            raise DatasetError(
                f"{path} is no text table in UTF-8: it holds NUL bytes (a NumPy archive of a whole "
                "graph is given as custom:npz=FILE)"
            )
    comment, declared, first = COMMENTS[0], None, ""
    with reading(path), open_text(path) as file:
        for line in file:
            text = line.strip()
            if text.startswith(COMMENTS):
                comment = text[0]
                found = re.search(r"\bEdges:\s*(\d+)", text)
                declared = int(found[1]) if found else declared
            elif text:
                first = text
                break
    if not first:
        raise DatasetError(f"{path} holds no rows")
    separator = next((mark for mark in ",;" if mark in first), r"\s+")
    fields = [field.strip().strip("\"'") for field in re.split(separator, first)]
    header = tuple(fields) if not any(_is_number(field) for field in fields) else None
    return Layout(separator, comment, header, len(fields), declared)


def read_columns(
    path: Path, columns: Sequence[Column], layout: Layout, dtype: str = "int64"
) -> list[npt.NDArray[Any]]:
    """Some columns of a table, as arrays of ``dtype`` (``int64``, ``float64`` or ``str``).

    Args:
        columns: by name (if there is a header) or by number from 0.

    Raises:
        UsageError: a column that the table does not have.
        DatasetError: missing, truncated, or a row that does not fit; names the line.
    """
    places = [_place(column, layout, path) for column in columns]
    parts: list[list[npt.NDArray[Any]]] = [[] for _ in places]
    for chunk in _chunks(path, places, layout, dtype):
        for part, place in zip(parts, places, strict=True):
            part.append(chunk[place].to_numpy())
    empty: npt.NDArray[Any] = np.empty(0, dtype=object if dtype == "str" else dtype)
    return [np.concatenate(part) if part else empty for part in parts]


def read_matrix(path: Path) -> npt.NDArray[np.float32]:
    """A table of numbers without a header line: float32 ``[rows, columns]``.

    Raises:
        DatasetError: missing, truncated, or a row that does not fit; names the line.
    """
    layout = sniff(path)
    places = list(range(layout.width))
    return np.concatenate(
        [
            chunk[places].to_numpy(dtype=np.float32)
            for chunk in _chunks(path, places, layout, "float64")
        ]
    )


def _chunks(path: Path, places: Sequence[int], layout: Layout, dtype: str) -> Iterator[Any]:
    """Data frames of at most CHUNK numbers; columns are numbered, ``places`` have ``dtype``."""
    import pandas as pd

    kind: Any = np.dtype(dtype) if dtype != "str" else object
    try:
        with reading(path), open_bytes(path) as file:
            yield from pd.read_csv(
                file,
                sep=layout.separator,
                comment=layout.comment,
                header=None if layout.header is None else 0,
                names=range(layout.width),
                dtype=dict.fromkeys(places, kind),
                keep_default_na=dtype == "float64",
                skipinitialspace=True,
                index_col=False,
                encoding="utf-8-sig",
                chunksize=max(CHUNK // layout.width, 1),
            )
    except (ValueError, OverflowError) as error:
        where = _first_bad_line(path, layout, places, dtype)
        few = " and ".join(map(str, places)) if len(places) < 4 else f"0 to {places[-1]}"
        raise DatasetError(
            f"{path}{where or f': {error}'}; every row needs {layout.width} fields, and "
            f"{_WANTED[dtype]} in column {few}"
        ) from error


def read_edges(
    path: Path, source: Column = 0, target: Column = 1
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The edges of a list: two int64 ``[E]`` arrays of node numbers as written.

    Raises:
        UsageError, DatasetError: as :func:`read_columns`; fewer rows than a SNAP comment declares.
    """
    layout = sniff(path)
    if layout.width < 2:
        raise DatasetError(f"{path} has one column; an edge list needs two")
    src, dst = read_columns(path, (source, target), layout)
    if not src.size:
        raise DatasetError(f"{path} holds a header line and no edges")
    if layout.declared is not None and src.size < layout.declared:
        raise DatasetError(
            f"{path} declares {layout.declared} edges and holds {src.size}: it seems truncated "
            "(if it is complete, remove its comment line)"
        )
    return src, dst


def read_longest_rows(path: Path, count: int) -> list[npt.NDArray[np.int64]]:
    """The ``count`` lines that hold most numbers, longest first (SNAP communities).

    Of equal lengths the earlier line comes first.

    Raises:
        DatasetError: missing, truncated, or a line with something else than numbers.
    """
    with reading(path), open_text(path) as file:
        rows = ((len(text.split()), -number, text) for number, text in enumerate(file, start=1)
                if text.strip() and not text.startswith(COMMENTS))  # fmt: skip
        longest = heapq.nlargest(count, rows)
    if not longest:
        raise DatasetError(f"{path} holds no rows")
    parsed = []
    for _, number, text in longest:
        try:
            parsed.append(np.array([int(field) for field in text.split()], dtype=np.int64))
        except (ValueError, OverflowError) as error:
            raise DatasetError(f"{path}, line {-number}: {error}") from error
    return parsed


_WANTED = {"int64": "a whole number", "float64": "a number", "str": "a word"}


def _place(column: Column, layout: Layout, path: Path) -> int:
    if isinstance(column, int) and 0 <= column < layout.width:
        return column
    if isinstance(column, str) and layout.header is not None and column in layout.header:
        return layout.header.index(column)
    known = ", ".join(layout.header) if layout.header is not None else "no header line"
    raise UsageError(
        f"{path} has no column {column!r}; it has {layout.width} (number them from 0): {known}"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_bad_line(path: Path, layout: Layout, places: Sequence[int], dtype: str) -> str:
    """Where the first row lies that does not fit, for the message; "" if none is found."""
    convert: Any = {"int64": int, "float64": float, "str": str}[dtype]
    with reading(path), open_text(path) as file:
        lines = ((n, s) for n, s in enumerate(map(str.strip, file), start=1)
                 if s and not s.startswith(layout.comment))  # fmt: skip
        for number, text in islice(lines, 1 if layout.header is not None else 0, None):
            fields = re.split(layout.separator, text)
            try:
                for place in places:
                    convert(fields[place])
                if len(fields) > layout.width:
                    raise ValueError
            except (ValueError, IndexError):
                return f", line {number}: {text[:80]!r}"
    return ""
