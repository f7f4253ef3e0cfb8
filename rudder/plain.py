"""Values as JSON has them, so that no report or result is lost to a NumPy number or a NaN."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """``value`` as JSON values: NaN and infinity become null, paths text, arrays lists.

    Raises:
        TypeError: something in it has no JSON form.
    """
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # NumPy, without importing it
        return plain(value.tolist())
    if isinstance(value, Sequence | Set):
        return [plain(item) for item in value]
    raise TypeError(f"{value!r} has no JSON form")
