"""Counting what DistDGL's requests put on the wire.

DGL's sampling requests pass through two functions of ``dgl.distributed.rpc`` that turn a request
into its payload and a payload into a response. Feature pulls do not: they run in C++ and are
counted from the ids pulled. Counted is payload, without TCP and DGL headers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import dgl.distributed.rpc as rpc


class RpcPayload:
    """Bytes of the request and response payloads of this process since it was installed."""

    def __init__(self) -> None:
        self.bytes = 0

    def take(self) -> int:
        """Bytes since the last call."""
        taken, self.bytes = self.bytes, 0
        return taken


_counter: RpcPayload | None = None


def rpc_payload() -> RpcPayload:
    """The process's counter; the first call installs it into DGL."""
    global _counter
    if _counter is None:
        _counter = RpcPayload()
        _install(_counter)
    return _counter


def ring_allreduce_bytes(model_bytes: int, ranks: int) -> int:
    """Bytes that one rank sends in a ring all-reduce of ``model_bytes`` over ``ranks``."""
    return 2 * (ranks - 1) * model_bytes // ranks if ranks > 1 else 0


def _install(counter: RpcPayload) -> None:
    serialize, deserialize = rpc.serialize_to_payload, rpc.deserialize_from_payload

    @functools.wraps(serialize)
    def counted_serialize(serializable: Any) -> Any:
        data, tensors = serialize(serializable)
        counter.bytes += len(data) + _tensor_bytes(tensors)
        return data, tensors

    @functools.wraps(deserialize)
    def counted_deserialize(cls: Any, data: Any, tensors: Any) -> Any:
        counter.bytes += len(data) + _tensor_bytes(tensors)
        return deserialize(cls, data, tensors)

    rpc.serialize_to_payload = counted_serialize
    rpc.deserialize_from_payload = counted_deserialize


def _tensor_bytes(tensors: Iterable[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)
