"""Messages between a launcher and its agents on other hosts, over any stream of bytes.

A frame is two lengths, a JSON object and, for the output of roles, raw bytes. This module is sent
to hosts as source: it imports the standard library alone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]

OPENING = b"\x1e@rudder-agent 1\n"
"""What an agent writes first; what a login shell says before it is no part of the stream."""

_LENGTHS = struct.Struct(">II")
_LONGEST = 1 << 26


def encode(message: Message, payload: bytes = b"") -> bytes:
    """One frame."""
    text = json.dumps(message).encode()
    return _LENGTHS.pack(len(text), len(payload)) + text + payload


class Decoder:
    """Cuts a stream into frames, whatever pieces it arrives in."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[Message, bytes]]:
        """Take the next bytes; the frames that they complete.

        Raises:
            ValueError: the stream is no sequence of frames.
        """
        self._rest += data
        while len(self._rest) >= _LENGTHS.size:
            text, payload = _LENGTHS.unpack_from(self._rest)
            if text + payload > _LONGEST:
                raise ValueError(f"a frame of {text + payload} bytes cannot be meant")
            start, end = _LENGTHS.size, _LENGTHS.size + text + payload
            if len(self._rest) < end:
                return
            whole, self._rest = self._rest[:end], self._rest[end:]
            yield json.loads(whole[start : start + text]), whole[start + text :]
