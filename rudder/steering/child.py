"""The process of a controller: JSON lines in, JSON lines out. Run by ``process.py`` only.

End of input ends the process, even while the controller is busy: the trainer is gone or has given
up.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from typing import IO

from rudder.registries import CONTROLLERS
from rudder.steering.protocol import OUT_OF_MEMORY, Session

GRACE_S = 1.0
"""Seconds that the controller has to close after the end of input."""


def main() -> None:
    # Replies go to a private copy of standard output; whatever a library prints goes to the log.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(sys.stdin, requests), daemon=True)
    reader.start()
    session = Session(CONTROLLERS.build)
    try:
        while (line := requests.get()) is not None:
            replies.write(json.dumps(session.handle(json.loads(line))) + "\n")
            replies.flush()
            if session.exhausted:
                sys.exit(OUT_OF_MEMORY)
    finally:
        session.close()


def _read(stream: IO[str], requests: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        requests.put(line)
    requests.put(None)
    timer = threading.Timer(GRACE_S, os._exit, args=(0,))
    timer.daemon = True  # a controller that closes in time need not wait for it
    timer.start()


if __name__ == "__main__":
    main()
