"""Partitioning in several processes at once, killed, and from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rudder_datasets.partition import MetisPartitioner, RandomPartitioner

from rudder.errors import PartitionError

from .toy import make_graph, silent


@pytest.fixture
def ring_plugin(tmp_path: Path) -> Path:
    """A plug-in file with a dataset ``ring:size=60``."""
    plugin = tmp_path / "ring_plugin.py"
    plugin.write_text(
        "import numpy as np\n"
        "from rudder.dataset import Graph\n"
        "from rudder.registries import DATASETS\n"
        "def ring(size=60):\n"
        "    ids = np.arange(size)\n"
        "    mask = ids % 3\n"
        "    return Graph('ring', ids, (ids + 1) % size, np.ones((size, 2), np.float32),\n"
        "                 ids % 2, mask == 0, mask == 1, mask == 2, 2)\n"
        "DATASETS.register('ring', ring)\n"
    )
    return plugin


def test_two_processes_at_once_get_the_same_partition(
    cli: Any, ring_plugin: Path, tmp_path: Path
) -> None:
    arguments = ("partition", "ring", "--parts", "3", "--plugin", ring_plugin, "--json")
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(cli, *arguments, timeout=240) for _ in range(2)]
        done = [run.result() for run in runs]
    assert [(run.code, run.err) for run in done] == [(0, "")] * 2
    one, two = (json.loads(run.out) for run in done)
    assert one == two
    folders = [path for path in Path(one["folder"]).parent.iterdir() if path.is_dir()]
    assert folders == [Path(one["folder"])]


def test_a_killed_process_leaves_nothing_that_counts_and_no_child(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from rudder.dataset import Graph\n"
        "from rudder_datasets import partition\n"
        "def slowly(*args):\n"
        "    Path(sys.argv[2]).touch()\n"
        "    time.sleep(60)\n"
        "partition.write_parts = slowly\n"
        "data = np.load(sys.argv[1])\n"
        "graph = Graph('toy graph', **{k: data[k] for k in data.files}, classes=4)\n"
        "partition.RandomPartitioner().partition(\n"
        "    graph, 'toy', 2, 0, Path(sys.argv[3]), lambda phase, share: None)\n"
    )
    graph = make_graph()
    names = ("src", "dst", "features", "labels", "train", "val", "test")
    np.savez(tmp_path / "graph.npz", **{name: getattr(graph, name) for name in names})
    flag, cache = tmp_path / "writing", tmp_path / "cache"
    slow = subprocess.Popen(
        [sys.executable, "-I", str(script), str(tmp_path / "graph.npz"), str(flag), str(cache)]
    )
    deadline = time.monotonic() + 60
    while not flag.exists():
        assert time.monotonic() < deadline
        assert slow.poll() is None
        time.sleep(0.05)
    slow.kill()
    slow.wait(timeout=10)
    left = [path.name for path in cache.iterdir() if path.is_dir()]
    assert len(left) == 1
    assert left[0].endswith(".part")
    made = RandomPartitioner().partition(graph, "toy", 2, 0, cache, silent)
    assert [path for path in cache.iterdir() if path.is_dir()] == [made.folder]


def test_a_failing_metis_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PartitionError, match=r"METIS .* ended with code 1: it said nothing"):
        MetisPartitioner().partition(make_graph(), "toy", 4, 0, tmp_path, silent)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_metis_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "rudder_datasets.metis", "2", "0", str(os.getppid())],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "is gone" in done.stderr


def test_a_killed_partition_takes_metis_along(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.npy")  # METIS waits here for what somebody writes
    script = (
        "import os, subprocess, sys\n"
        "command = [sys.executable, '-I', '-m', 'rudder_datasets.metis', '2', '0']\n"
        "child = subprocess.Popen([*command, str(os.getpid())], stderr=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-I", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    metis = int(parent.stdout.readline())
    writer = _writer(tmp_path / "train.npy")
    try:
        assert not _ended(metis)
        parent.kill()
        parent.wait(10)
        deadline = time.monotonic() + 10
        while not _ended(metis):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.close(writer)
        parent.stdout.close()


def _writer(fifo: Path) -> int:
    """The end to write to, once somebody reads."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _ended(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_command_prints_facts_and_json(cli: Any, ring_plugin: Path) -> None:
    def run(graph: str, *more: str) -> Any:
        return cli("partition", graph, "--plugin", ring_plugin, *more, timeout=240)

    done = run("ring:size=90", "--parts", "3", "--method", "random", "--json")
    assert (done.code, done.err) == (0, "")
    facts = json.loads(done.out)
    assert facts["graph"] == "ring:size=90"
    assert facts["part_edges"] == facts["part_nodes"]
    assert sum(facts["part_train"]) == 30
    assert Path(facts["folder"], "rudder.json").is_file()
    done = run("ring:size=90", "--parts", "3", "--method", "random")
    assert done.code == 0
    for word in ("edge cut", "beyond halo", facts["digest"], facts["folder"]):
        assert word in done.out
    done = run("ring:size=2", "--parts", "3")
    assert done.code == 2
    assert "ask for fewer parts" in done.err
    done = run("ring", "--method", "metiss")
    assert done.code == 2
    assert "did you mean 'metis'" in done.err


@pytest.mark.parametrize(
    ("options", "levels"), [((), {"WARNING"}), (("-q",), set()), (("-vv",), {"WARNING", "DEBUG"})]
)
def test_how_much_is_said(
    cli: Any, tmp_path: Path, options: tuple[str, ...], levels: set[str]
) -> None:
    (tmp_path / "g.csv").write_text("0,1\n1,2\n2,3\n3,0\n")
    done = cli("partition", "custom:edges=g.csv", "--parts", "2", *options, timeout=240)
    assert done.code == 0
    lines = [line for line in done.err.splitlines() if " rudder_datasets." in line]
    assert {line.partition(" ")[0] for line in lines} == levels
