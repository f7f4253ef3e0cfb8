"""No room: shared memory of a host, or the disk that holds the run."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from .conftest import FILLER, HERE, IN_TIME, MOMENTS, SOME, THRICE, Train, inside

pytestmark = [pytest.mark.cluster, pytest.mark.full]

IMPORTS_S = 60.0
"""At start-up a run first sees to its imports."""
TRAINING_S = 300.0
DISK = 16 << 20


@THRICE
def test_shared_memory_is_full_when_the_servers_start(train: Train, repeat: int) -> None:
    training = train()
    training.wait_for_hosts()
    inside(training.first_processes()["host1"], "full", "/dev/shm")
    told = training.ends(IMPORTS_S + IN_TIME)
    assert told["error"] == "RoleError"
    assert "server 1 on host1 (10.91.0.2)" in told["message"]


@THRICE
def test_shared_memory_is_full_when_all_is_there(train: Train, repeat: int) -> None:
    training = train(epochs=SOME // 4)
    training.wait_for("mid-epoch")
    inside(training.first_processes()["host1"], "full", "/dev/shm")
    training.goes_on()


@THRICE
@MOMENTS
def test_the_disk_is_full(train: Train, tmp_path: Path, moment: str, repeat: int) -> None:
    home = tmp_path / "data"
    (home / "runs").mkdir(parents=True)
    start = (sys.executable, "-I", str(HERE / "small_disk.py"), str(home / "runs"), str(DISK))
    # Training goes on without its journal, as its log says, and fails where its result has no room.
    training = train(home=home, before=start, epochs=SOME // 4)
    training.wait_for_hosts()
    disk = os.open(f"/proc/{training.process.pid}/root{home}/runs", os.O_RDONLY)  # outlives them
    training.runs = Path(f"/proc/self/fd/{disk}")
    if moment == "mid-epoch":
        training.wait_for(moment)
    reported = training.reported()
    _fill(training.runs / FILLER)
    told = training.ends(IMPORTS_S + IN_TIME if moment == "start-up" else TRAINING_S)
    assert os.strerror(errno.ENOSPC) in told["message"]
    assert str(home) in told["message"]
    assert moment == "start-up" or min(reported) > 5
    if moment == "mid-epoch":
        assert "make room, or it ends without a result" in training.said
        assert "has no checkpoint" in training.said
    os.close(disk)


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler:
        size = 1 << 16
        while size:
            try:
                filler.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
