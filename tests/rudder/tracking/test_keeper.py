"""The keeper: a command ends with its parent, however the parent ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest


def kept(patience: float, code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-m", "rudder.tracking.keeper", str(patience),
         sys.executable, "-I", "-c", code],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 60
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return path.read_text()


def gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("pass", 0)],
)
def test_the_exit_code_is_the_commands(code: str, status: int) -> None:
    keeper = kept(5, code)
    assert keeper.wait(60) == status
    assert keeper.stdin is not None
    keeper.stdin.close()


_TREE = """
import os, signal, sys, time
from pathlib import Path
child = os.fork()
def told(number, frame):
    Path({told!r}).write_text("told")
    sys.exit()
signal.signal(signal.SIGTERM, {handler})
if child:
    Path({pids!r}).write_text(f"{{os.getpid()}} {{child}}")
time.sleep(600)
"""


@pytest.mark.parametrize(("handler", "heeds"), [("told", True), ("signal.SIG_IGN", False)])
def test_the_end_of_its_input_ends_the_command_and_its_children(
    tmp_path: Path, handler: str, heeds: bool
) -> None:
    told, pids = tmp_path / "told", tmp_path / "pids"
    code = _TREE.format(told=str(told), pids=str(pids), handler=handler)
    keeper = kept(30 if heeds else 0.2, code)
    both = [int(pid) for pid in wait_for(pids).split()]
    assert not any(map(gone, both))
    assert keeper.stdin is not None
    keeper.stdin.close()
    start = time.monotonic()
    assert keeper.wait(60) == -9  # with its group, last of all
    assert time.monotonic() - start < 20
    deadline = time.monotonic() + 10
    while not all(map(gone, both)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert told.exists() == heeds
