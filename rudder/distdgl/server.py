"""A DistDGL server process: holds one part of the graph and its features."""

from __future__ import annotations

import logging
import os

from rudder.cluster.report import report

_log = logging.getLogger(__name__)


def serve() -> None:
    """Serve until the last trainer leaves. Reads DGL's environment variables."""
    report("started")
    import dgl

    _log.info("server %s opens %s", os.environ["DGL_SERVER_ID"], os.environ["DGL_CONF_PATH"])
    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])  # never returns in a server
