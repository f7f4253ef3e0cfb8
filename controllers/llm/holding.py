"""Can this machine hold a model? What is needed against what there is, before anything is loaded.

Memory is the sum of the weights, the kept state of prompts and the program itself. Figures are
estimates from above; where the weights are here, their number and the state's size are read from
them.
"""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rudder.cluster.doctor import Check
from rudder.errors import ControllerError

from .backends.base import Backend, BackendError
from .backends.precision import BYTES, PRECISIONS, Precision
from .backends.remote import RemoteBackend
from .backends.weights import locate

if TYPE_CHECKING:
    from .agent import Agent

_GB = 1e9
PROGRAM_GB = 0.8
"""Python with torch and transformers, and what reading a prompt takes for a while."""
_TOKENS = 6_144
"""Whose state is kept: static parts of four trainers, and one question."""
_Q4_BYTES = 0.6
"""Per weight, as servers hold models unless told otherwise: 4 bits and scales."""


def checks(agent: Agent, backend: Backend) -> Iterator[Check]:
    """What an agent needs of this machine, one check each."""
    if isinstance(backend, RemoteBackend):
        yield from _of_server(agent, backend)
        return
    yield from _libraries(agent)
    try:
        place: Path | None = locate(agent.model)
        yield Check("weights", True, str(place))
    except (ControllerError, ImportError) as error:
        place = None
        yield Check("weights", False, str(error))
    yield _memory(agent, place)


def _libraries(agent: Agent) -> Iterator[Check]:
    """What is installed of the extra ``llm``."""
    install = "pip install 'rudder-gnn[llm]'"
    quantised = agent.precision in ("int8", "nf4")
    wanted = {
        "transformers": False,
        "xgrammar": None if agent.mode == "score" else False,
        "bitsandbytes": None,
    }
    for library, otherwise in wanted.items():
        if importlib.util.find_spec(library) is not None:
            yield Check(library, True, "installed")
        elif library == "bitsandbytes" and quantised:
            found = f"not installed: {agent.fallback} is used instead of {agent.precision}"
            yield Check(library, None, found, install)
        else:
            use = {"xgrammar": " (for mode=generate)", "bitsandbytes": " (for int8 and nf4)"}
            yield Check(library, otherwise, f"not installed{use.get(library, '')}", install)


def _memory(agent: Agent, place: Path | None) -> Check:
    weights = _weights_of(place) if place is not None and place.is_dir() else 0
    weights = weights or round(agent.billions * 1e9)
    if not weights:
        found = "how many weights the model has is not known here"
        return Check("memory", None, found, "give billions=, or load the weights first")
    state = _TOKENS * (_state_bytes(place) or _state_at_most(weights))
    where, free = _free()
    needed = {p: _needed(weights, p, state, on_gpu=where == "GPU") for p in PRECISIONS}
    asked = agent.precision
    found = (
        f"{weights / 1e9:.3g} billion weights as {asked}: about {needed[asked] / _GB:.1f} GB; "
        f"{free / _GB:.1f} GB free ({where})"
    )
    if needed[asked] <= free:
        return Check("memory", True, found)
    smaller = [p for p in PRECISIONS if needed[p] <= free]
    if smaller:
        least = max(smaller, key=lambda p: BYTES[p])
        advice = f"precision={least} takes {needed[least] / _GB:.1f} GB"
        return Check("memory", False, found, advice)
    return Check("memory", False, found, "use a smaller model, or a server (backend=openai)")


def _needed(weights: int, precision: Precision, state: int, *, on_gpu: bool) -> float:
    per_weight = BYTES[precision]
    if not on_gpu:
        # Quantising on the CPU begins with the weights as they are stored, in 16 bits.
        per_weight = max(per_weight, BYTES["bf16"])
    return weights * per_weight + state + PROGRAM_GB * _GB


def _free() -> tuple[str, int]:
    """Where a model would lie, and bytes free there."""
    try:
        import torch

        if torch.cuda.is_available():
            return "GPU", int(torch.cuda.mem_get_info()[0])
    except (ImportError, OSError, RuntimeError):
        pass  # then it is the CPU's memory
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return "CPU", int(rest.split()[0]) * 1024
    raise ControllerError("/proc/meminfo does not tell how much memory is available")


def _weights_of(folder: Path) -> int:
    """Number of weights in a directory's safetensors, from their headers."""
    return sum(_weights_in(path) for path in folder.glob("*.safetensors"))


def _weights_in(path: Path) -> int:
    """A safetensors file begins with the length of its header, 8 bytes, and the header, JSON."""
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header: dict[str, Any] = json.loads(stream.read(length))
    total = 0
    for name, tensor in header.items():
        if name != "__metadata__":
            size = 1
            for extent in tensor["shape"]:
                size *= extent
            total += size
    return total


def _state_bytes(place: Path | None) -> int:
    """Bytes of keys and values per token, in 16 bits; 0 = not known."""
    if place is None or not (place / "config.json").is_file():
        return 0
    config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    config = config.get("text_config", config)
    try:
        heads = config.get("num_key_value_heads") or config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        return int(2 * 2 * config["num_hidden_layers"] * heads * size)
    except KeyError:
        return 0


def _state_at_most(weights: int) -> int:
    """As :func:`_state_bytes` for a model whose shape is not known: no spec here has more."""
    return round(1024 * min(256, 64 + 128 * weights / 1e9))


def _of_server(agent: Agent, backend: RemoteBackend) -> Iterator[Check]:
    pull = f"start it, and fetch the model there (Ollama: ollama pull {agent.model})"
    try:
        offered = backend.offered()
        yield Check("server", True, f"{backend.host} answers")
        named = agent.model in offered
        found = agent.model if named else f"{agent.model} is not among: {', '.join(offered) or '-'}"
        yield Check("model", named, found, "" if named else pull)
    except BackendError as error:
        yield Check("server", False, str(error), pull)
    here = urlsplit(agent.url).hostname in ("127.0.0.1", "localhost", "::1")
    if agent.billions and here:
        weights = round(agent.billions * 1e9)
        needed = weights * _Q4_BYTES + _TOKENS * _state_at_most(weights)
        where, free = _free()
        found = (
            f"{agent.billions:.3g} billion weights of 4 bits: about {needed / _GB:.1f} GB on the "
            f"server; {free / _GB:.1f} GB free here ({where})"
        )
        # The server may hold the model already, or use both memories.
        yield Check("memory", True if needed <= free else None, found)
