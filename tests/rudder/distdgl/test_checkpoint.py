"""Checkpoints on disk: whole or not at all, whatever befalls the disk or a rank."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rudder.distdgl import checkpoint
from rudder.distdgl.checkpoint import Part
from rudder.errors import CheckpointError

RANKS = 2


def keep(folder: Path, epoch: int, ranks: range = range(RANKS), size: int = 10) -> None:
    """What the ranks keep at the end of an epoch, one like the other."""
    for rank in ranks:
        tail = Part({"journal": np.frombuffer(b"line\n" * size, np.uint8)}, {})
        checkpoint.write(checkpoint.tail_path(folder, epoch, rank), tail)
        state = Part({"model.w": np.arange(size)}, {"tails": list(range(epoch + 1)), "rank": rank})
        checkpoint.write(checkpoint.state_path(folder, epoch, rank), state)


def held(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.npz")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "checkpoints"


def test_arrays_and_facts_come_back_as_they_were(folder: Path) -> None:
    arrays: dict[str, Any] = {
        "model.layer.0.weight": np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32),
        "model.bias": np.array(2.5),
        "buffer.ids": np.arange(5),
        "empty": np.empty((0, 7), np.float64),
        "flag": np.array(True),
    }
    facts = {"epoch": 3, "named": {"a": [1, None, "ö"]}}
    path = checkpoint.state_path(folder, 3, 0)
    assert checkpoint.write(path, Part(arrays, facts)) == path.stat().st_size
    back = checkpoint.read(path)
    assert back.facts == facts
    assert set(back.arrays) == set(arrays)
    for name, array in arrays.items():
        assert back.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(back.arrays[name], array)
    assert set(back.below("model")) == {"layer.0.weight", "bias"}


def test_nothing_that_would_be_pickled_is_written(folder: Path) -> None:
    path = checkpoint.state_path(folder, 0, 0)
    with pytest.raises(ValueError, match="Object arrays"):
        checkpoint.write(path, Part({"it": np.array([{}], dtype=object)}, {}))
    assert held(folder) == set()


def test_nothing_is_unpickled(folder: Path, tmp_path: Path) -> None:
    """A file that somebody put there, with a pickle that would run code."""

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    path = checkpoint.state_path(folder, 0, 0)
    path.parent.mkdir(parents=True)
    for arrays in (
        {"facts": np.array([Evil()], dtype=object)},
        {
            "facts": np.frombuffer(b'{"version": 1}', np.uint8),
            "x": np.array([Evil()], dtype=object),
        },
    ):
        np.savez(path, **arrays)
        with pytest.raises(CheckpointError, match="no whole part"):
            checkpoint.read(path)
    assert not (tmp_path / "ran").exists()


def test_the_last_epoch_that_every_rank_has_counts(folder: Path) -> None:
    assert checkpoint.last_complete(folder, RANKS) is None
    keep(folder, 0)
    keep(folder, 1)
    keep(folder, 2, range(1))  # the other rank died meanwhile
    assert checkpoint.last_complete(folder, RANKS) == 1
    checkpoint.state_path(folder, 1, 1).unlink()
    assert checkpoint.last_complete(folder, RANKS) == 0
    checkpoint.tail_path(folder, 0, 1).unlink()
    assert checkpoint.last_complete(folder, RANKS) is None


@pytest.mark.parametrize("what", ["state", "tail"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied"])
def test_damage_to_any_part_sends_back_to_the_checkpoint_before(
    folder: Path, what: str, damage: str
) -> None:
    for epoch in range(3):
        keep(folder, epoch, size=1000)
    place = checkpoint.state_path if what == "state" else checkpoint.tail_path
    path = place(folder, 2, 1)
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    path.write_bytes({"cut": whole[:-30], "flipped": flipped, "emptied": b""}[damage])
    assert checkpoint.last_complete(folder, RANKS) == 1
    with pytest.raises(CheckpointError, match=path.name):
        checkpoint.read(path)


def test_two_states_and_every_tail_are_kept(folder: Path) -> None:
    for epoch in range(4):
        keep(folder, epoch)
        for rank in range(RANKS):
            checkpoint.keep_last(folder, list(range(epoch + 1)), range(rank, rank + 1))
    states = {f"epoch={e}/rank={r}.npz" for e in (2, 3) for r in range(RANKS)}
    tails = {f"epoch={e}/rank={r}.tail.npz" for e in range(4) for r in range(RANKS)}
    assert held(folder) == states | tails
    checkpoint.clear(folder, 2, range(RANKS))
    assert checkpoint.last_complete(folder, RANKS) == 2
    assert not any(name.startswith("epoch=3") for name in held(folder))
    checkpoint.clear(folder, None, range(RANKS))
    assert held(folder) == set()


def test_another_version_is_not_taken(folder: Path) -> None:
    path = checkpoint.state_path(folder, 0, 0)
    path.parent.mkdir(parents=True)
    np.savez(path, facts=np.frombuffer(b'{"version": 99, "tails": []}', np.uint8))
    with pytest.raises(CheckpointError, match="version 99"):
        checkpoint.read(path)
    assert checkpoint.last_complete(folder, 1) is None


def test_a_file_that_grows_too_large_leaves_nothing_and_what_was_there_stays(folder: Path) -> None:
    keep(folder, 0, range(1))
    before = checkpoint.read(checkpoint.state_path(folder, 0, 0))
    large = Part({"model.w": np.zeros(1 << 20)}, {"tails": [0]})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limit[1]))
    try:
        for epoch in (0, 1):
            with pytest.raises(OSError, match="File too large"):
                checkpoint.write(checkpoint.state_path(folder, epoch, 0), large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert checkpoint.last_complete(folder, 1) == 0
    now = checkpoint.read(checkpoint.state_path(folder, 0, 0))
    np.testing.assert_array_equal(now.arrays["model.w"], before.arrays["model.w"])
    assert [p for p in folder.parent.rglob("*") if p.is_file() and p.suffix != ".npz"] == []
    assert list(folder.with_name("checkpoints.part").iterdir()) == []


_FILL = """
import errno, os, sys
from pathlib import Path
from rudder.cluster import namespaces
uid, gid = os.getuid(), os.getgid()
namespaces.unshare(namespaces.NEWUSER, "unshare user namespace")
namespaces.map_this_user(uid, gid)
namespaces.unshare(namespaces.NEWNS, "unshare mount namespace")
namespaces.make_mounts_private()
namespaces.mount("tmpfs", sys.argv[1], "tmpfs", 0, "size=1M,mode=0755")
import numpy as np  # only now: a process with threads cannot unshare
from rudder.distdgl import checkpoint
from rudder.distdgl.checkpoint import Part
folder = Path(sys.argv[1]) / "checkpoints"
kept = 0
try:
    for epoch in range(100):
        part = Part({"model.w": np.zeros(1 << 15)}, {"tails": list(range(epoch + 1))})
        checkpoint.write(checkpoint.tail_path(folder, epoch, 0), Part({}, {}))
        checkpoint.write(checkpoint.state_path(folder, epoch, 0), part)
        kept = epoch
except OSError as error:
    assert error.errno == errno.ENOSPC, error
    assert checkpoint.last_complete(folder, 1) == kept
    assert not list(folder.with_name("checkpoints.part").iterdir())
    print("full", kept)
"""


def test_a_full_disk_leaves_the_last_checkpoint_whole(tmp_path: Path) -> None:
    """A real one, of 1 MB, in a mount namespace of its own."""
    script = tmp_path / "fill.py"
    script.write_text(_FILL)
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        [sys.executable, "-I", str(script), str(disk)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["full", "2"]  # four states of 256 KiB do not fit into 1 MiB
