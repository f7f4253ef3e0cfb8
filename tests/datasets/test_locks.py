"""One process at a time."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path

import pytest
from rudder_datasets.locks import alone


def test_the_second_waits_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    waiting, got = threading.Event(), threading.Event()

    def second() -> None:
        with alone(tmp_path / "lock", waiting.set):
            got.set()

    thread = threading.Thread(target=second)
    with caplog.at_level(logging.INFO), alone(tmp_path / "lock"):
        thread.start()
        assert waiting.wait(10)
        assert not got.is_set()
    thread.join(10)
    assert got.is_set()
    assert caplog.text.count(f"waiting for another process that holds {tmp_path}/lock") == 1


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        with alone(tmp_path / "lock"):
            (tmp_path / "held").touch()
            signal.pause()
    while not (tmp_path / "held").exists():
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with alone(tmp_path / "lock", lambda: pytest.fail("it is held")):
        pass
