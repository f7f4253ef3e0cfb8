"""The process that serves the trainers of a host with one controller kind. Run by ``service.py``.

What the controllers share (a model's weights) is loaded once. Each connection to the Unix socket is
one trainer's session with a controller of its own; answers are worked out one at a time, in order
of arrival. Connections may also ask ``{"op": "ping"}``; the reply tells for how long the answer in
work has taken. The process ends with its standard input, and when memory has run out.
"""

from __future__ import annotations

import json
import os
import socketserver
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from rudder.controller import Controller
from rudder.plugins import PluginFile, load_files
from rudder.registries import CONTROLLERS
from rudder.steering.protocol import OUT_OF_MEMORY, Session


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, path: str, loaded: Any) -> None:
        super().__init__(path, _Connection)
        self.loaded = loaded
        self.turn = threading.Lock()
        self.busy_since: float | None = None

    def build(self, spec: Mapping[str, Any]) -> Controller:
        controller: Controller = CONTROLLERS.build(spec)
        controller.adopt(self.loaded)
        return controller


class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        session = Session(self.server.build)
        try:
            for line in self.rfile:
                reply = self._reply(session, json.loads(line))
                self.wfile.write(json.dumps(reply).encode() + b"\n")
                if session.exhausted:
                    os._exit(OUT_OF_MEMORY)  # all trainers', from a thread: the keeper starts anew
        except (ConnectionError, ValueError):
            return  # the trainer is gone, or was cut off in the middle of a line
        finally:
            session.close()

    def _reply(self, session: Session, request: Mapping[str, Any]) -> dict[str, Any]:
        since = self.server.busy_since
        if request["op"] == "ping":
            return {"busy_s": 0.0 if since is None else time.monotonic() - since}
        with self.server.turn:
            self.server.busy_since = time.monotonic()
            try:
                return session.handle(request)
            finally:
                self.server.busy_since = None


def main() -> None:
    # Words to the launcher go to a private copy of standard output; all else to the log.
    words = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # not held back: the process may end at any time
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with, args=(sys.stdin,), daemon=True).start()

    def say(**what: Any) -> None:
        words.write(json.dumps(what) + "\n")
        words.flush()

    start = time.monotonic()
    try:
        load_files([PluginFile(**plugin) for plugin in order["plugins"]])
        controller: Controller = CONTROLLERS.build(order["spec"])
        loaded = controller.load(lambda phase, share: say(phase=phase, share=share))
    except Exception as error:  # noqa: BLE001 - whatever it is, the launcher reports it
        say(error=f"{type(error).__name__}: {error}")
        return
    path = Path(order["socket"])
    path.unlink(missing_ok=True)  # of a process that this one stands in for
    with _Server(str(path), loaded) as server:
        say(loaded_s=time.monotonic() - start)
        server.serve_forever()


def _end_with(stream: IO[str]) -> None:
    for _ in stream:
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
