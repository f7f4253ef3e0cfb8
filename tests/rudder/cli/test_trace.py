"""``rudder trace`` as a user meets it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rudder.errors import MissingPathError
from rudder.home import Home
from rudder.registries import TRACES
from rudder.trace import Trace, find_trace, trace_folder
from rudder.trace.format import MAX_ROWS

SMALL = ("sbm:nodes=900,classes=3", "--parts", "2", "--partition-method", "random")


def test_a_sampled_trace_is_told_and_found_by_name(cli: Any, tmp_path: Path) -> None:
    arguments = ("trace", *SMALL, "--engine", "sampler", "--epochs", "2", "--batch-size", "50",
                 "--batch-size-at", "1=20")  # fmt: skip
    ran = cli(*arguments, "--out", "mine", "--json", timeout=120)
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)  # JSON alone on stdout
    folder = tmp_path / "mine.trace"
    assert told["trace"] == str(folder)
    assert (told["recorder"], told["complete"]) == ("sampler", True)
    assert told["bytes"] == sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    trace = Trace.open(folder)
    assert told["minibatches"] == [trace.length(0), trace.length(1)]
    assert trace.manifest.scenario.batch_size_at == ((1, 20),)
    assert "rudder replay" in ran.err
    again = cli(*arguments, "--out", "mine", timeout=120)
    assert (again.code, again.out) == (2, "")
    assert "not empty" in again.err
    unnamed = cli(*arguments, timeout=120)
    home = Home.resolve(tmp_path / "rudder-data")
    (made,) = home.traces.iterdir()
    assert str(made) in unnamed.out
    assert made.name.startswith("sbm-")
    assert find_trace(made.stem, home) == find_trace(str(made), home) == made


@pytest.mark.cluster
def test_a_real_run_is_recorded_in_the_same_form(cli: Any, tmp_path: Path) -> None:
    for arguments in (("trace", *SMALL), ("train", *SMALL, "--no-track", "--controller", "always")):
        where = ("--out" if arguments[0] == "trace" else "--record", arguments[0])
        ran = cli(*arguments, "--epochs", "1", *where, "--json", timeout=200)
        assert ran.code == 0, ran.err
        json.loads(ran.out)
        trace = Trace.open(tmp_path / f"{arguments[0]}.trace")
        assert trace.complete
        assert trace.manifest.recorder == "distdgl"
        assert sum(row.compute_s for row in trace.minibatches(1)) > 0


@pytest.mark.cluster
def test_what_a_killed_run_had_recorded_opens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    main = "import sys; from rudder.cli.app import main; sys.exit(main())"
    arguments = ("trace", *SMALL, "--batch-size", "1", "--fan-out", "1,1", "--epochs", "99",
                 "--out", "killed", "--home", "home")  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", main, *arguments],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    closed = [tmp_path / "killed.trace" / f"rank={r}" / "part-00000.parquet" for r in range(2)]
    try:
        wait_until(lambda: all(path.exists() for path in closed) or process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    with caplog.at_level(logging.WARNING):
        trace = Trace.open(tmp_path / "killed.trace")
    assert not trace.complete
    assert "did not end" in caplog.text
    for rank in trace.ranks:
        assert trace.length(rank) >= MAX_ROWS
        assert trace.length(rank) % MAX_ROWS == 0
        assert sum(1 for _ in trace.minibatches(rank)) == trace.length(rank)


def wait_until(done: Callable[[], bool], seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["debain", "--engine", "sampler"], 2, "did you mean 'debian'"),
        (["debain"], 2, "did you mean 'debian'"),
        (["debian", "--engine", "samplr"], 2, "--engine"),
        (["debian", "--partition-method", "meits", "--engine", "sampler"], 2, "'metis'"),
        (["debian", "--policy", "scor", "--engine", "sampler"], 2, "did you mean 'score'"),
        (["debian", "-c", "always", "--engine", "sampler"], 2, "runs no controller"),
        (["debian", "--batch-size-at", "9=5"], 2, "epoch 9"),
        (["rmat:nodes=64,edges=200", "--parts", "2", "--seed-order", "communities", "--phases",
          "60", "--engine", "sampler", "--partition-method", "random"], 2, "phases = 60"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_clear_error(
    cli: Any, arguments: list[str], code: int, says: str, tmp_path: Path
) -> None:
    ran = cli("trace", *arguments, "--out", "x", timeout=120)
    assert ran.code == code, ran.err
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""
    assert not (tmp_path / "x.trace").exists()


def test_names_paths_and_suffixes(home: Home, tmp_path: Path) -> None:
    assert trace_folder(tmp_path / "a") == trace_folder(tmp_path / "a.trace")
    assert trace_folder(Path("/")) == Path("/.trace")
    (tmp_path / "a.trace").mkdir()
    assert find_trace(str(tmp_path / "a"), home) == tmp_path / "a.trace"  # as it was made
    with pytest.raises(MissingPathError, match=r"no trace at .*debian-dmeo.*'debian-demo'"):
        find_trace("debian-dmeo", home)
    assert "debian-demo" in TRACES.names()


def test_the_shipped_trace_is_whole_and_small(home: Home) -> None:
    trace = Trace.open(find_trace("debian-demo", home))
    assert trace.complete
    assert len(trace.ranks) == 4
    assert trace.common_length >= 200
    for rank in trace.ranks:
        assert sum(1 for _ in trace.minibatches(rank)) == trace.length(rank)
    assert sum(f.stat().st_size for f in trace.folder.rglob("*") if f.is_file()) < 5_000_000
