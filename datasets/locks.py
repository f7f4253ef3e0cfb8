"""One process at a time: what several may want to make in one place."""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_WAIT_S = 0.2
_log = logging.getLogger(__name__)


@contextmanager
def alone(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock file ``path``; it is made, and stays. A killed process holds none.

    There is no deadline: whoever holds it may rightly work for hours.

    Args:
        waiting: called now and then while another process holds it.

    Raises:
        OSError: the file cannot be opened for writing.
    """
    with path.open("a") as file:
        first = True
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if first:
                    _log.info("waiting for another process that holds %s", path)
                first = False
                waiting()
                time.sleep(_WAIT_S)
        yield
