"""A role's output: all of it in its file, and line by line for who asks for everything."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rudder.cluster.rolelog import RoleLog


def write(path: Path, *pieces: bytes) -> bytes:
    with path.open("wb", buffering=0) as file:
        log = RoleLog("trainer 0 on host1", file)
        for piece in pieces:
            log(piece)
    return path.read_bytes()


def test_lines_are_told_whole_with_the_name_of_the_role(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "rudder.cluster.rolelog")
    pieces = (b"one\ntw", b"o\r\n", b"\xff three\nunfinished")
    assert write(tmp_path / "log", *pieces) == b"".join(pieces)
    assert caplog.messages == [
        "trainer 0 on host1 | one", "trainer 0 on host1 | two", "trainer 0 on host1 | � three",
    ]  # fmt: skip
    caplog.clear()
    write(tmp_path / "log", b"x" * 100_000)
    assert [len(message) for message in caplog.messages] == [100_000 + len("trainer 0 on host1 | ")]


def test_without_asking_only_the_file_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rudder.cluster.rolelog")
    assert write(tmp_path / "log", b"one\n") == b"one\n"
    assert caplog.messages == []
