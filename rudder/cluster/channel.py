"""Messages between the launcher of emulated hosts and the processes inside: JSON and descriptors.

A sequenced-packet socket keeps messages apart and says when the other side is gone. What may be
large travels in an anonymous file whose descriptor is passed, since a packet is limited to about
200 kB.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]

_SIZE = 65536
_DESCRIPTORS = 4


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends; neither survives an exec unless it is passed on purpose."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send one message.

    Raises:
        OSError: the other side is gone.
    """
    socket.send_fds(end, [json.dumps(message).encode()], descriptors)


def receive(end: socket.socket, wait: bool = True) -> tuple[Message | None, list[int]]:
    """The next message and its descriptors; None when the other side is gone.

    Raises:
        BlockingIOError: nothing is there and ``wait`` is False.
    """
    flags = socket.MSG_CMSG_CLOEXEC | (0 if wait else socket.MSG_DONTWAIT)
    try:
        # not socket.recv_fds, which drops the flags in Python 3.10 and 3.11
        data, extra, _, _ = end.recvmsg(_SIZE, socket.CMSG_SPACE(4 * _DESCRIPTORS), flags)
    except ConnectionResetError:
        return None, []
    if not data:
        return None, []
    message: Message = json.loads(data)
    descriptors = array.array("i")
    for level, kind, content in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content)
    return message, list(descriptors)


def parcel(content: Message) -> int:
    """Descriptor of an anonymous file that holds ``content``."""
    descriptor = os.memfd_create("rudder", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(json.dumps(content).encode())
    return descriptor


def unpack(descriptor: int) -> Message:
    """What a parcel holds; the descriptor is closed."""
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        content: Message = json.load(file)
    return content
