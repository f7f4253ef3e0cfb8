"""What ``rudder doctor --model`` says: memory, weights, libraries, servers."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from rudder_controllers.llm import holding
from rudder_controllers.llm.agent import Agent
from rudder_controllers.llm.backends.base import BackendError
from rudder_controllers.llm.backends.remote import RemoteBackend

from rudder.cluster.doctor import Check
from rudder.steering import build_controller


@pytest.fixture
def gigabytes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``gigabytes(8)``: so much memory is free."""

    def free(amount: float, where: str = "CPU") -> None:
        monkeypatch.setattr(holding, "_free", lambda: (where, int(amount * 1e9)))

    return free


def needs(agent: Agent | str) -> dict[str, Check]:
    controller = build_controller(agent) if isinstance(agent, str) else agent
    return {check.name: check for check in controller.needs()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of 10 million weights, most of them in one tensor, and the shape of its state."""
    import torch
    from safetensors.torch import save_file

    tensors = {"big": torch.zeros(9_000, 1_000, dtype=torch.int8), "flat": torch.zeros(1_000_000)}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    shape = {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
             "hidden_size": 576}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(shape))
    return tmp_path


def test_a_folder_without_weights_is_none(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").touch()
    found = needs(Agent(str(tmp_path), billions=7.0))["weights"]
    assert found.ok is False
    assert "no config.json with safetensors" in found.found


def test_weights_that_are_here_are_counted(folder: Path, gigabytes: Any) -> None:
    gigabytes(4)
    assert holding._weights_of(folder) == 10_000_000
    assert holding._state_bytes(folder) == 30 * 2 * 3 * 64 * 2
    found = needs(Agent(str(folder), billions=7.0))
    assert found["weights"] == Check("weights", True, str(folder))
    assert found["memory"].ok is True
    assert "0.01 billion weights as bf16: about 1.0 GB; 4.0 GB free (CPU)" in found["memory"].found
    nested = {"text_config": json.loads((folder / "config.json").read_text())}
    (folder / "config.json").write_text(json.dumps(nested))
    assert holding._state_bytes(folder) == 30 * 2 * 3 * 64 * 2


def test_memory_goes_by_precision_and_place(gigabytes: Any) -> None:
    gigabytes(8, "GPU")
    assert needs("gemma3-4b:precision=bf16")["memory"].ok is False
    assert "precision=int8 takes" in needs("gemma3-4b")["memory"].advice
    assert needs("gemma3-4b:precision=nf4")["memory"].ok is True
    # On the CPU quantising begins with 16 bits.
    gigabytes(8)
    assert needs("gemma3-4b:precision=nf4")["memory"].ok is False
    gigabytes(13)
    assert needs("gemma3-4b")["memory"].ok is True
    assert needs("gemma3-4b:precision=float32")["memory"].ok is False
    assert "precision=bf16 takes" in needs("gemma3-4b:precision=float32")["memory"].advice
    gigabytes(140, "GPU")  # one H200
    assert needs("mixtral-8x22b")["memory"].ok is True
    assert needs("mixtral-8x22b:precision=bf16")["memory"].ok is False


def test_what_is_not_known_is_no_failure(gigabytes: Any) -> None:
    gigabytes(8)
    memory = needs(Agent("package:no-such-weights"))["memory"]
    assert memory.ok is None
    assert "billions=" in memory.advice


def test_missing_weights_and_libraries_are_told(
    monkeypatch: pytest.MonkeyPatch, gigabytes: Any
) -> None:
    gigabytes(100)
    found = needs("gemma3-4b")
    assert found["weights"].ok is False
    assert "hf download google/gemma-3-4b-it" in found["weights"].found
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = needs("gemma3-4b:precision=nf4")
    assert found["transformers"].ok is False
    assert found["xgrammar"].ok is None
    assert found["bitsandbytes"].ok is None
    assert "bf16 is used instead of nf4" in found["bitsandbytes"].found
    assert needs("gemma3-4b:mode=generate")["xgrammar"].ok is False


def test_a_server_is_asked_what_it_has(monkeypatch: pytest.MonkeyPatch, gigabytes: Any) -> None:
    gigabytes(2)
    monkeypatch.setattr(RemoteBackend, "offered", lambda self: ["gemma3:1b", "smollm2:135m"])
    found = needs("smollm2-135m-server")
    assert [found[name].ok for name in ("server", "model", "memory")] == [True, True, True]
    found = needs("gemma3-4b-server")
    assert found["model"].ok is False
    assert "ollama pull gemma3:4b" in found["model"].advice
    assert found["memory"].ok is None  # the server may hold it otherwise

    def refuse(self: RemoteBackend) -> list[str]:
        raise BackendError("refused", "127.0.0.1:11434: ConnectionError")

    monkeypatch.setattr(RemoteBackend, "offered", refuse)
    found = needs("gemma3-4b-server")
    assert found["server"].ok is False
    assert "model" not in found
    elsewhere = 'gemma3-4b-server:url="http://10.0.0.7:8000/v1"'
    assert "memory" not in needs(elsewhere)
