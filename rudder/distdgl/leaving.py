"""How a process of a job that has failed leaves: at once.

DGL's exit hook is a barrier of all trainers. One that has failed must not wait there: the others
wait for it in the exchange of gradients, and nobody would learn of the failure.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_barrier_after_failure() -> Iterator[None]:
    """Around all that a trainer does: what it raises goes on, and DGL's exit hook is left out."""
    try:
        yield
    except BaseException as error:
        left_well = isinstance(error, SystemExit) and not error.code
        hooks = sys.modules.get("dgl.distributed.dist_context")
        if hooks is not None and not left_well:
            atexit.unregister(hooks.exit_client)
        raise
