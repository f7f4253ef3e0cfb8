"""scikit-learn's models on disk: skops archives that may hold the listed types and no others."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import skops.io
from sklearn.exceptions import InconsistentVersionWarning

from rudder.errors import ModelError

_PLAIN = frozenset(
    {
        "builtins.dict", "builtins.list", "builtins.str", "builtins.tuple",
        "numpy.ndarray", "numpy.float64", "numpy.int64",
    }
)  # fmt: skip
"""What any fitted model is made of."""
_NODES = frozenset(
    {
        "DictNode", "JsonNode", "ListNode", "NdArrayNode", "ObjectNode", "TreeNode", "TupleNode",
        "TypeNode",
    }
)  # fmt: skip
"""Ways in which skops makes objects; functions, methods and random states are not among them."""
_MOST_BYTES = 256 * 2**20
"""Unpacked. A model that is to answer within milliseconds stays far below."""


def save(model: dict[str, Any], path: Path) -> None:
    """Write parts of a model by name."""
    skops.io.dump(model, path, compression=zipfile.ZIP_DEFLATED, compresslevel=9)


def read(path: Path, types: Collection[type]) -> dict[str, Any]:
    """Read what :func:`save` wrote.

    skops itself trusts several hundred types. So what an archive declares is compared with the
    listed types before it is read.

    Args:
        types: classes of scikit-learn that the model is made of.

    Raises:
        ModelError: missing, damaged, or with other types.
    """
    listed = {f"{kind.__module__}.{kind.__qualname__}" for kind in types}
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            schema = json.loads(archive.read("schema.json")) if size <= _MOST_BYTES else None
        foreign = sorted(set(_declared(schema)) - _PLAIN - listed)
        if schema is not None and not foreign:
            with warnings.catch_warnings():
                # Which versions can read a model is said by its manifest; of what was fitted only
                # arrays are used, whose shapes are checked.
                warnings.simplefilter("ignore", InconsistentVersionWarning)
                model = skops.io.load(path, trusted=sorted(listed))
    except Exception as error:  # damage shows as errors of zipfile, zlib, json, numpy or skops
        raise ModelError(
            f"{path} is no model that scikit-learn can read ({type(error).__name__}: {error}); "
            "fit it anew"
        ) from error
    if schema is None:
        raise ModelError(f"{path} would unpack to {size / 2**20:.0f} MiB; fit the model anew")
    if foreign:
        raise ModelError(
            f"{path} holds {', '.join(foreign)}, which this model is not made of; fit it anew"
        )
    if not isinstance(model, dict):
        raise ModelError(f"{path} holds a {type(model).__name__} instead of a model's parts")
    return model


def part(path: Path, model: dict[str, Any], name: str, kind: type, columns: int) -> Any:
    """A part of a model.

    Args:
        columns: that the part was fitted to.

    Raises:
        ModelError: missing, of another class, or fitted to other columns.
    """
    found = model.get(name)
    if type(found) is not kind:
        raise ModelError(
            f"{path} should hold a {kind.__name__} as {name!r}, found {type(found).__name__}; "
            "fit the model anew"
        )
    if (fitted := getattr(found, "n_features_in_", None)) != columns:
        raise ModelError(
            f"{path}: {name!r} was fitted to {fitted} columns instead of {columns}; fit the model "
            "anew"
        )
    return found


def _declared(node: Any) -> Iterator[str]:
    """Types, and ways of making objects that are not allowed, below a node of the schema."""
    if isinstance(node, dict):
        if "__class__" in node or "__loader__" in node:
            yield f"{node.get('__module__')}.{node.get('__class__')}"
            if node.get("__loader__") not in _NODES:
                yield f"a {node.get('__loader__')}"
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _declared(child)
