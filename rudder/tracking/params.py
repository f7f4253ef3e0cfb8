"""Scenario and controller as flat MLflow params, within MLflow's limits."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rudder.scenario import Scenario
from rudder.spec import Spec

MAX_NAME = 250
MAX_VALUE = 6000
MAX_TAG = 5000
_REFUSED = re.compile(r"[^\w\-. :/]", re.ASCII)


def flatten(scenario: Scenario, controller: Spec) -> dict[str, str]:
    """Params of a run: each scenario field by its name, ``controller`` and ``controller.KEY``.

    Nested mappings become dotted names; lists and other values their JSON text. A name that MLflow
    refuses is rewritten and made unique by a hash; a value that is too long is cut and says so. The
    full specs are artifacts beside, so that nothing is lost.
    """
    found: dict[str, str] = {}
    pairs = [
        *_leaves("", scenario.model_dump(mode="json")),
        ("controller", controller.name),
        *_leaves("controller.", controller.params),
    ]
    for name, value in pairs:
        text = value if isinstance(value, str) else json.dumps(value)
        found[_name(name, found)] = clip(text, MAX_VALUE)
    return found


def clip(text: str, limit: int) -> str:
    """``text``, or its start with a mark that tells how much is missing and the hash of all.

    Halves of surrogate pairs, which a file name may bring and no store takes, are spelled out.
    """
    text = text.encode(errors="backslashreplace").decode()
    if len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    mark = f"… [{len(text)} characters, SHA-256 {digest}, whole in the artifacts]"
    return text[: limit - len(mark)] + mark


def clipped(values: Mapping[str, str], limit: int) -> dict[str, str]:
    """All of them, each within ``limit``."""
    return {key: clip(str(value), limit) for key, value in values.items()}


def _leaves(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", value


def _name(name: str, taken: Mapping[str, str]) -> str:
    # MLflow reads a name as a relative path that must not change when it is normalised.
    clean = "/".join(
        part if part.strip(".") else "_" for part in _REFUSED.sub("_", name).split("/")
    )
    if clean == name and len(name) <= MAX_NAME and name not in taken:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{clean[: MAX_NAME - 9]}-{digest}"
