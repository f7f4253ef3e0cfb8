"""What one process at a time may work at."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rudder.errors import RudderError


@contextmanager
def held(path: Path, busy: RudderError) -> Iterator[None]:
    """Hold the lock file ``path``; the kernel gives it back whatever ends this process.

    Raises:
        RudderError: ``busy``; another process holds it.
    """
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise busy from error
        yield
