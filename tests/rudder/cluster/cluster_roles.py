"""What the roles of the tests do; imported inside emulated hosts."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

from rudder.cluster.report import report

PORT = 4000


def look(words: str = "") -> None:
    """Report what this host looks like from inside."""
    Path("/dev/shm/mine").write_text(words)
    report(
        "looked",
        hostname=socket.gethostname(),
        shared=sorted(os.listdir("/dev/shm")),
        pids=sum(name.isdigit() for name in os.listdir("/proc")),
        interfaces=[name for _, name in socket.if_nameindex()],
        variable=os.environ.get("ROLE_VARIABLE"),
        cwd=os.getcwd(),
        argv=sys.argv,
        peer=socket.gethostbyname("host0"),
    )


def listen(size: int) -> None:
    """Receive ``size`` bytes from one peer and report how long they took."""
    with socket.create_server(("0.0.0.0", PORT)) as server:
        report("ready")
        peer, address = server.accept()
        start = time.monotonic()
        got = 0
        while got < size:
            got += len(peer.recv(1 << 16))
        report("received", seconds=time.monotonic() - start, peer=address[0])


def talk(address: str, size: int) -> None:
    """Send ``size`` bytes to a listening peer."""
    deadline = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection((address, PORT), timeout=5) as peer:
                peer.sendall(bytes(size))
                return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def draw() -> None:
    """Report random numbers of the generators that a fork would copy."""
    import random

    import numpy as np

    report("drew", numbers=[random.random(), float(np.random.rand())])


def hold(phase: str = "ready") -> None:
    """Take shared memory, start a child and stay."""
    Path("/dev/shm/held").write_bytes(bytes(1 << 20))
    if os.fork() == 0:
        os.setsid()
        time.sleep(300)
    report(phase, pid=os.getpid())
    time.sleep(300)


def leave_child() -> None:
    """End at once, but leave a process and shared memory behind."""
    Path("/dev/shm/left").write_bytes(bytes(1 << 20))
    if os.fork() == 0:
        os.setsid()
        time.sleep(300)
    os._exit(0)


def fail(status: int) -> None:
    print("this is what went wrong", flush=True)
    sys.exit(status)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
