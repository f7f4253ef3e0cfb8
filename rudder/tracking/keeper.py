"""``python -m rudder.tracking.keeper SECONDS COMMAND…``: a command that ends with its parent.

Runs the command, and ends its whole process group when standard input ends: the parent holds the
other end of a pipe, and the kernel closes it however the parent dies. (A signal at the parent's
death would reach one process only, and MLflow's command leaves the serving to a child.) The group
must be this process's own.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType


def main(patience: float, command: Sequence[str]) -> int:
    """Run ``command`` to its end, or until standard input ends.

    Args:
        patience: seconds from SIGTERM to SIGKILL.

    Returns:
        The command's exit code, 128 and more for a signal. It does not return if the input ends.
    """
    # It outlives the SIGTERM that it sends to its group. A handler, unlike SIG_IGN, is not passed
    # on to the command.
    signal.signal(signal.SIGTERM, _nothing)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    with selectors.DefaultSelector() as selector:
        ended = os.pidfd_open(child.pid)
        selector.register(ended, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        ready = {key.fileobj for key, _ in selector.select()}
        os.close(ended)
    if ended not in ready:
        os.killpg(os.getpgrp(), signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(patience)
        os.killpg(os.getpgrp(), signal.SIGKILL)  # stragglers, and this process
    code = child.wait()
    return code if code >= 0 else 128 - code


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
