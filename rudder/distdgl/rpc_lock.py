"""One lock around DGL's RPC client, which is not made for two threads.

DGL's client numbers its requests in one process-wide counter and reads responses from one queue:
a lookup in the training thread during a pull in the background thread would take the other's
answer. The loader holds the lock while it samples and pulls. All else that a script may ask the
servers (``g.ndata["label"][ids]``, degrees, sampling, barriers, sparse embeddings) takes it too.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from dgl.distributed import graph_services
from dgl.distributed.kvstore import KVClient

RPC_LOCK = threading.RLock()

_GUARDED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (KVClient, ("pull", "push", "count_nonzero", "init_data", "delete_data", "barrier")),
    (
        graph_services,
        ("_distributed_access", "_distributed_edge_access", "_distributed_get_node_property"),
    ),
)
"""Where every request of a trainer to the servers starts, by whatever name it was called."""

_guarded = False


def guard_requests() -> None:
    """Make every request of this process to DGL's servers take the lock (once)."""
    global _guarded
    if _guarded:
        return
    _guarded = True
    for owner, names in _GUARDED:
        for name in names:
            setattr(owner, name, _locked(getattr(owner, name)))


def _locked(request: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(request)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with RPC_LOCK:
            return request(*args, **kwargs)

    return locked
