"""The real engine, and the public door for people's own DistDGL scripts.

:class:`DistNodeDataLoader` stands where ``dgl.dataloading.DistNodeDataLoader`` and the feature
lookup stood. It is imported when first asked for, since it imports DGL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rudder.distdgl.loader import DistNodeDataLoader

__all__ = ["DistNodeDataLoader"]


def __getattr__(name: str) -> Any:
    if name == "DistNodeDataLoader":
        from rudder.distdgl.loader import DistNodeDataLoader

        return DistNodeDataLoader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
