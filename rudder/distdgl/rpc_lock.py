"""One lock around DGL's RPC client, which is not made for two threads.

DGL's client numbers its requests in one process-wide counter and reads responses from one queue:
a lookup in the training thread during a pull in the background thread would take the other's
answer. The loader holds the lock while it samples and pulls; lookups in a ``DistTensor``
(``g.ndata["label"][ids]`` in a user's script) take it too.
"""

from __future__ import annotations

import threading
from typing import Any

from dgl.distributed import DistTensor

RPC_LOCK = threading.RLock()
_guarded = False


def guard_dist_tensors() -> None:
    """Make every ``DistTensor`` read and write of this process take the lock (once)."""
    global _guarded
    if _guarded:
        return
    _guarded = True
    get, put = DistTensor.__getitem__, DistTensor.__setitem__

    def locked_get(self: Any, ids: Any) -> Any:
        with RPC_LOCK:
            return get(self, ids)

    def locked_put(self: Any, ids: Any, values: Any) -> None:
        with RPC_LOCK:
            put(self, ids, values)

    DistTensor.__getitem__ = locked_get
    DistTensor.__setitem__ = locked_put
