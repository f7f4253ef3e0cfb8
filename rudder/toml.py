"""Reading TOML with the file named in every error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rudder.errors import SpecError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file.

    Raises:
        SpecError: it is missing, cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SpecError(f"no such file: {path}") from error
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} is not TOML: {error}") from error
