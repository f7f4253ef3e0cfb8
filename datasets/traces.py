"""Access traces that are shipped."""

from __future__ import annotations

from pathlib import Path


def debian_demo() -> Path:
    """Four trainers on the bundled graph; how it was made stands in ``data/README.md``."""
    return Path(__file__).parent / "data" / "debian-demo.trace"
