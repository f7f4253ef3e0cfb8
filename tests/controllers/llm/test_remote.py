"""OpenAI-compatible servers: ways of asking for a schema, and servers that misbehave."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from rudder_controllers.llm.answers import answer_schema
from rudder_controllers.llm.backends import remote
from rudder_controllers.llm.backends.base import BackendError, Generated
from rudder_controllers.llm.backends.remote import MAX_BYTES, RemoteBackend
from rudder_controllers.llm.prompt import Prompt

from rudder.errors import ControllerError, SpecError

from .http_servers import ANSWER, Handler, Reply, Server, completion, cut, drip, flood, serving

PROMPT = Prompt("You steer.", "Replace or keep?")
KEY = "sk-very-secret-0123456789"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


def ask(server: Server | str, seed: int | None = None, **options: Any) -> Generated:
    backend = opened(server, **options)
    try:
        return backend.generate(PROMPT, answer_schema(), seed)
    finally:
        backend.close()


def opened(server: Server | str, **options: Any) -> RemoteBackend:
    url = server if isinstance(server, str) else server.url
    backend = RemoteBackend("m", url, **{"timeout_s": 5.0, "retries": 0, **options})
    backend.open(lambda phase, share: None)
    return backend


def test_a_question_and_its_answer(server: Server) -> None:
    found = ask(server)
    assert found.text == ANSWER
    assert (found.usage.prompt_tokens, found.usage.answer_tokens) == (40, 20)
    path, headers, body = server.seen[0]
    assert path == "/v1/chat/completions"
    assert body["messages"] == [
        {"role": "system", "content": PROMPT.static},
        {"role": "user", "content": PROMPT.dynamic},
    ]
    assert body["response_format"]["json_schema"]["schema"] == answer_schema()
    assert (body["temperature"], "seed" in body) == (0.0, False)
    assert "Authorization" not in headers
    ask(server, seed=7)
    assert (server.seen[1][2]["temperature"], server.seen[1][2]["seed"]) == (1.0, 7)


def test_plainer_ways_are_tried_once_and_remembered(server: Server) -> None:
    def reply(handler: Handler) -> None:
        way = server.ways[-1]
        handler.answer(200, completion(ANSWER)) if way == "words" else handler.answer(
            500 if way == "json_schema" else 400, b"{}"
        )

    server.reply = reply
    backend = opened(server)
    assert backend.generate(PROMPT, answer_schema()).text == ANSWER
    assert backend.generate(PROMPT, answer_schema()).text == ANSWER
    assert server.ways == ["json_schema", "json_object", "words", "words"]
    assert backend.facts()["structured_by"] == "words"
    backend.close()


def test_a_server_that_ignores_the_schema_is_found_out(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.reply = lambda handler: handler.answer(200, completion("I would replace."))
    backend = opened(server)
    with caplog.at_level(logging.WARNING):
        found = [backend.generate(PROMPT, answer_schema()) for _ in range(2)]
    assert [f.text for f in found] == ["I would replace."] * 2
    assert found[0].notes["ignores_schema"] is True
    assert backend.facts()["ignores_schema"] is True
    assert sum("ignores it" in record.message for record in caplog.records) == 1
    backend.close()


@pytest.mark.parametrize(
    ("reply", "trouble"),
    [
        (lambda h: time.sleep(20), "timeout"),
        (drip, "timeout"),
        (cut, "broken"),
        (flood, "too long"),
        (lambda h: h.answer(200, b"<html>"), "broken"),
        (lambda h: h.answer(200, b'{"choices": []}'), "broken"),
        (lambda h: h.answer(200, b'[1, 2]'), "broken"),
        (lambda h: h.answer(200, completion([{"type": "text"}])), "broken"),
        (lambda h: h.answer(200, completion(ANSWER)[:-9]), "broken"),
        (lambda h: h.answer(503, b"{}"), "http"),
        (lambda h: h.answer(401, b"{}"), "http"),
        (lambda h: h.answer(302, b""), "http"),
    ],
    ids=[
        "hangs", "drips", "closes mid-answer", "10 MB", "html", "no choices", "a list", "no text",
        "truncated JSON", "503", "401", "redirects",
    ],
)  # fmt: skip
def test_misbehaving_servers(server: Server, reply: Reply, trouble: str) -> None:
    server.reply = reply
    start = time.monotonic()
    with pytest.raises(BackendError) as caught:
        ask(server, timeout_s=0.5 if trouble == "timeout" else 10.0)
    assert caught.value.trouble == trouble
    assert time.monotonic() - start < 8.0


def test_a_stall_is_late_also_where_the_library_finds_out_first(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stall(handler: Handler) -> None:
        handler.answer(200, completion(ANSWER)[:30], length=500)
        time.sleep(20)

    monkeypatch.setattr(remote._Guard, "_late", lambda guard: None)
    server.reply = stall
    with pytest.raises(BackendError) as caught:
        ask(server, timeout_s=0.4)
    assert caught.value.trouble == "timeout"


def chunk(choice: dict[str, Any] | None, **more: Any) -> bytes:
    found = {"model": "m-served", "choices": [] if choice is None else [choice], **more}
    return f"data: {json.dumps(found)}\n\n".encode()


STREAM = [
    chunk({"delta": {"role": "assistant"}}),
    b": a comment\n\n",
    *(chunk({"delta": {"content": ANSWER[at : at + 9]}}) for at in range(0, len(ANSWER), 9)),
    chunk({"delta": {}, "finish_reason": "stop"}),
]


@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n\n"], ids=["nothing", "DONE"])
def test_a_server_that_streams_unasked_is_read(server: Server, end: bytes) -> None:
    usage = {"prompt_tokens": 40, "completion_tokens": 20}
    body = b"".join(STREAM) + chunk(None, usage=usage) + end
    server.reply = lambda handler: handler.answer(200, body, kind="text/event-stream; charset=u")
    found = ask(server)
    assert found.text == ANSWER
    assert (found.usage.prompt_tokens, found.usage.answer_tokens) == (40, 20)
    assert server.seen[0][2]["stream"] is False


@pytest.mark.parametrize(
    "body",
    [b"", b"".join(STREAM[:-1]), STREAM[0] + b"data: {]\n\n", b'data: {"error": "no"}\n\n',
     b"data: \xff\n\n", b"data: 7\n\n"],
    ids=["nothing", "cut", "no JSON", "an error", "no text", "no object"],
)  # fmt: skip
def test_a_stream_that_is_no_answer(server: Server, body: bytes) -> None:
    server.reply = lambda handler: handler.answer(200, body, kind="text/event-stream")
    with pytest.raises(BackendError) as caught:
        ask(server)
    assert caught.value.trouble == "broken"


def test_an_answer_that_says_nothing_is_handed_on(server: Server) -> None:
    server.reply = lambda handler: handler.answer(200, completion(None))
    assert ask(server).text == ""
    assert MAX_BYTES < 10 << 20


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        with pytest.raises(BackendError, match="refused"):
            ask(url)


def test_bounded_retries(server: Server) -> None:
    def reply(handler: Handler) -> None:
        done = len(server.seen) > 2
        handler.answer(200 if done else 503, completion(ANSWER) if done else b"{}")

    server.reply = reply
    assert ask(server, retries=2).text == ANSWER
    assert len(server.seen) == 3
    server.seen.clear()
    with pytest.raises(BackendError, match="status 503"):
        ask(server, retries=1)
    assert len(server.seen) == 2


def test_the_breaker_opens_and_tries_again(server: Server) -> None:
    server.reply = lambda handler: handler.answer(401, b"{}")
    backend = opened(server, open_after=2, rest_s=0.3)
    for trouble in ("http", "http", "circuit open", "circuit open"):
        with pytest.raises(BackendError) as caught:
            backend.generate(PROMPT, answer_schema())
        assert caught.value.trouble == trouble
    assert len(server.seen) == 2
    time.sleep(0.35)
    server.reply = lambda handler: handler.answer(200, completion(ANSWER))
    assert backend.generate(PROMPT, answer_schema()).text == ANSWER
    assert backend.generate(PROMPT, answer_schema()).text == ANSWER
    backend.close()


def test_no_secret_is_told(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_RUDDER_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    troubles: list[Reply] = [
        lambda h: h.answer(401, f"bad key {KEY}".encode()),
        cut,
        lambda h: h.answer(200, completion("no")),
    ]
    said = []
    for reply in troubles:
        server.reply = reply
        backend = opened(server, key_env="TEST_RUDDER_KEY")
        try:
            said.append(repr(backend.generate(PROMPT, answer_schema()).notes))
        except BackendError as error:
            said.append(f"{error!r} {error.__cause__!r}")
        said.append(repr(backend.facts()))
        backend.close()
    assert server.seen[0][1]["Authorization"] == f"Bearer {KEY}"
    told = caplog.text + " ".join(said)
    assert "secret" not in told
    assert "Bearer" not in told


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "localhost:8000"}, "url must look like"),
        ({"url": "ftp://127.0.0.1/v1"}, "url must look like"),
        ({"url": "http://me:pass@127.0.0.1/v1"}, "no user or password"),
        ({"url": "http://127.0.0.1/v1", "timeout_s": 0}, "timeout_s must be above 0"),
        ({"url": "http://127.0.0.1/v1", "context": 10}, "context"),
    ],
)
def test_wrong_parameters(options: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        RemoteBackend("m", **options)


def test_a_missing_key_is_named() -> None:
    backend = RemoteBackend("m", "http://127.0.0.1:1/v1", key_env="TEST_RUDDER_NO_KEY")
    with pytest.raises(ControllerError, match="TEST_RUDDER_NO_KEY"):
        backend.open(lambda phase, share: None)


def test_what_a_server_offers(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    reply: dict[str, Any] = {"data": [{"id": "a"}, {"id": "b"}]}
    status, seen = 200, []

    def do_get(handler: Handler) -> None:
        seen.append((handler.path, handler.headers["Authorization"]))
        handler.answer(status, json.dumps(reply).encode())

    monkeypatch.setattr(Handler, "do_GET", do_get, raising=False)
    backend = RemoteBackend("a", server.url, key_env="TEST_KEY")
    assert backend.offered() == ["a", "b"]
    assert seen == [("/v1/models", f"Bearer {KEY}")]
    status = 404
    with pytest.raises(BackendError, match="status 404"):
        backend.offered()
    status, reply = 200, {"models": []}
    with pytest.raises(BackendError, match="sent no list of models"):
        backend.offered()
    with pytest.raises(BackendError, match="refused"):
        RemoteBackend("a", "http://127.0.0.1:9/v1").offered()


def test_a_server_that_was_ill_is_asked_for_a_schema_again(server: Server) -> None:
    """Refusing every way is no word about one of them."""
    server.reply = lambda handler: handler.answer(500, b"{}")
    backend = opened(server)
    with pytest.raises(BackendError, match="status 500"):
        backend.generate(PROMPT, answer_schema())
    server.reply = lambda handler: handler.answer(200, completion(ANSWER))
    assert backend.generate(PROMPT, answer_schema()).text == ANSWER
    assert server.ways == ["json_schema", "json_object", "words", "json_schema"]
    backend.close()
