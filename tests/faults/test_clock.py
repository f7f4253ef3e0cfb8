"""The clock of one trainer jumps by an hour: seconds are counted by a clock that cannot be set."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import HERE, MOMENTS, SOME, THRICE, Train

pytestmark = [pytest.mark.cluster, pytest.mark.full]

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
HOUR = 3600.0


@THRICE
@MOMENTS
def test_a_clock_jumps(train: Train, tmp_path: Path, moment: str, repeat: int) -> None:
    assert LIBRARY.exists(), "this test needs libfaketime: apt-get install libfaketime"
    clock = tmp_path / "clock"
    clock.write_text("+0s\n")
    start = (sys.executable, "-I", str(HERE / "clock_driver.py"), str(clock))
    training = train(before=start, epochs=SOME)
    training.wait_for(moment)
    faked = training.roles("host1")[1]
    assert LIBRARY.name in Path(f"/proc/{faked}/maps").read_text()
    jump = (-1 if repeat % 2 else 1) * HOUR
    clock.write_text(f"{jump:+.0f}s\n")
    assert abs(_faked_time(clock) - time.time() - jump) < HOUR / 2
    training.goes_on()
    result = training.result()
    seen = result.details["clock_jumps"]
    assert seen["launcher"] == seen["ranks"][0] == []
    jumped = [round(seconds / HOUR) for seconds in seen["ranks"][1]]
    before = round(seen["offsets_at_start"]["1"] / HOUR)  # it was set before the trainer looked
    assert jumped + [before] * bool(before) == [jump / HOUR]
    seconds = [e["seconds"] for rank in result.details["epochs"] for e in rank]
    for column in ("sample_s", "fetch_s", "compute_s", "stall_s"):
        seconds += result.minibatches.column(column).to_pylist()
    assert min(seconds) >= 0.0
    assert max(seconds) < HOUR / 10


def _faked_time(clock: Path) -> float:
    env = {
        "LD_PRELOAD": str(LIBRARY), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1",
    }  # fmt: skip
    command = [sys.executable, "-I", "-c", "import time; print(time.time())"]
    said = subprocess.run(command, env={**os.environ, **env}, capture_output=True, check=True)
    return float(said.stdout)
