"""Replies that come as an event stream, as ``transformers serve`` sends every one of them."""

from __future__ import annotations

import json
from typing import Any

EVENT_STREAM = "text/event-stream"


def whole(body: bytes) -> dict[str, Any]:
    """The chat completion that the chunks of a stream amount to.

    Args:
        body: server-sent events, each ``data:`` with one ``chat.completion.chunk`` as JSON, and
            at the end ``data: [DONE]`` or nothing.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, IndexError: it is no such stream.
    """
    text: list[str] = []
    usage: dict[str, Any] = {}
    model = ""
    finished = False
    for line in body.decode("utf-8").splitlines():
        field, _, value = line.partition(":")
        if field != "data" or not value.strip():
            continue
        if value.strip() == "[DONE]":
            finished = True
            break
        chunk = json.loads(value)
        model = chunk.get("model") or model
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"][:1]:  # the chunk with the usage has none
            text.append(choice["delta"].get("content") or "")
            finished = finished or bool(choice.get("finish_reason"))
    if not finished:
        raise ValueError("the stream ends before the answer does")
    return {"model": model, "usage": usage, "choices": [{"message": {"content": "".join(text)}}]}
