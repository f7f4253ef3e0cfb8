from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rudder.cluster.report import VARIABLE, Report, ReportReader, report
from rudder.cluster.roles import python_command


def written(phase: str, **data: object) -> bytes:
    """The bytes that a role writes for a report."""
    pieces: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "1")
        patch.setattr("rudder.cluster.report._write", pieces.append)
        report(phase, **data)
    return b"".join(pieces)


def read(*pieces: bytes) -> tuple[bytes, list[Report]]:
    """Log text and reports of output that arrives in these pieces."""
    log: list[bytes] = []
    reader = ReportReader(log.append)
    reports = [found for piece in pieces for found in reader.feed(piece)]
    reader.close()
    return b"".join(log), reports


texts = st.binary(max_size=40).filter(lambda text: b"\x1e@" not in text)
data = st.dictionaries(
    st.text(min_size=1, max_size=4).filter(lambda key: key != "phase"),
    st.one_of(st.integers(), st.floats(allow_nan=False), st.text(max_size=30), st.none()),
    max_size=4,
)


@given(st.lists(st.tuples(texts, data), max_size=6), texts, st.lists(st.integers(0, 400)))
def test_any_cut_of_the_output_gives_the_same_text_and_reports(
    items: list[tuple[bytes, dict[str, object]]], last: bytes, cuts: list[int]
) -> None:
    output = b"".join(text + written("step", **found) for text, found in items) + last
    ends = sorted({min(cut, len(output)) for cut in cuts} | {0, len(output)})
    pieces = [output[a:b] for a, b in pairwise(ends)]
    log, reports = read(*pieces)
    assert log == b"".join(text for text, _ in items) + last
    assert reports == [Report("step", found) for _, found in items]


def test_a_long_report_travels_in_pieces_that_a_pipe_keeps_whole() -> None:
    values = list(range(20_000))
    output = written("table", values=values)
    lines = output.splitlines(keepends=True)
    assert len(lines) > 10
    assert max(map(len, lines)) <= 4096
    torn = b"warning\n".join(lines)  # another process writes in between
    log, reports = read(torn)
    assert reports == [Report("table", {"values": values})]
    assert log == b"warning\n" * (len(lines) - 1)


def test_a_terminal_that_adds_carriage_returns_does_not_harm() -> None:
    assert read(written("ready").replace(b"\n", b"\r\n")) == (b"", [Report("ready", {})])


def test_text_that_resembles_a_frame_stays_text() -> None:
    fake = b"\x1e@rudder 1.0 1/1 not json\x1e\nand \x1e@rudder " + b"x" * 5000 + b"\n"
    assert read(fake) == (fake, [])


def test_an_unfinished_frame_is_shown_when_the_output_ends() -> None:
    torn = written("ready")[:-5]
    assert read(torn) == (torn, [])


def test_without_a_supervisor_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    report("ready")
    assert capfd.readouterr().out == ""


def test_data_that_is_not_json_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(TypeError):
        report("ready", what=object())


def test_reports_and_prints_of_a_real_process_keep_their_order() -> None:
    code = (
        "from rudder.cluster.report import report\n"
        "print('one', end=' '); report('a', n=1); print('two'); report('b')"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        env={VARIABLE: "1"},
        capture_output=True,
        check=True,
    )
    log, reports = read(done.stdout)
    assert log == b"one two\n"
    assert reports == [Report("a", {"n": 1}), Report("b", {})]
    assert done.stdout.index(b"one") < done.stdout.index(b'"a"') < done.stdout.index(b"two")


def test_python_command_imports_from_the_same_places_but_not_from_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    command = python_command("json.tool")
    assert "" not in json.loads(command[5])
    assert "-I" in command
