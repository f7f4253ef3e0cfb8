"""A DistDGL server process: holds one part of the graph and its features.

The first one also holds the store by which trainers find each other. The one that torch makes in
rank 0 listens at every interface; this one listens at the cluster's alone.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from rudder.cluster.report import report

_log = logging.getLogger(__name__)


def serve() -> None:
    """Serve until the last trainer leaves. Reads DGL's environment variables."""
    report("started")
    import dgl

    from rudder.distdgl.drawing import answer_seeded

    answer_seeded()
    store = hold_store() if os.environ["DGL_SERVER_ID"] == "0" else None
    _log.info("server %s opens %s", os.environ["DGL_SERVER_ID"], os.environ["DGL_CONF_PATH"])
    _log.debug("store: %s", store)  # it serves as long as it is referred to
    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])  # never returns in a server


def hold_store() -> Any:
    """torch's ``TCPStore`` at ``MASTER_ADDR`` and ``MASTER_PORT``, listening there alone."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    listener = socket.create_server((address, port), backlog=2048)
    return TCPStore(
        address, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
