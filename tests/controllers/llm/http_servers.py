"""An OpenAI-compatible server of the tests that answers, or misbehaves, as it is told."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = json.dumps(
    {
        "decision": "keep",
        "expected_hits": "stagnant",
        "expected_communication": "stagnant",
        "explanation": "",
    }
)
Reply = Callable[["Handler"], None]


def completion(text: Any, usage: dict[str, int] | None = None) -> bytes:
    usage = usage or {"prompt_tokens": 40, "completion_tokens": 20}
    reply = {"model": "m-served", "choices": [{"message": {"content": text}}], "usage": usage}
    return json.dumps(reply).encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, dict(self.headers), body))
        self.server.reply(self)

    def answer(
        self, status: int, body: bytes, length: int | None = None, kind: str = "application/json"
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.reply: Reply = lambda handler: handler.answer(200, completion(ANSWER))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def ways(self) -> list[str]:
        return [body.get("response_format", {}).get("type", "words") for _, _, body in self.seen]


@contextmanager
def serving() -> Iterator[Server]:
    """A server that is up, and gone afterwards."""
    made = Server()
    thread = threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


def drip(handler: Handler) -> None:
    body = completion(ANSWER)
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    for byte in body:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        time.sleep(0.05)


def cut(handler: Handler) -> None:
    handler.answer(200, completion(ANSWER)[:30], length=500)
    handler.connection.shutdown(socket.SHUT_RDWR)


def flood(handler: Handler) -> None:
    handler.answer(200, completion("x" * (10 << 20)))
