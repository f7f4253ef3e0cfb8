"""Recorded prompts asked again: the same weights give the same answers, others do not pass."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rudder_controllers.llm.backends.local import LocalBackend
from rudder_controllers.llm.backends.weights import find_weights
from rudder_controllers.llm.prompt import Prompt

from rudder.conformance.situations import episode, task
from rudder.errors import ControllerError
from rudder.steering import build_controller

from .conftest import FIELDS, MODEL, likeliest, silent

pytestmark = pytest.mark.llm

AGENT = "smollm2-135m:precision=float32,template=brief-v1,shots=2"
# In float32: bf16 comes out a little different where a CPU has other instructions.
QUESTIONS = (0, 4, -1)
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def recorded(open_model: Callable[..., LocalBackend]) -> list[dict[str, Any]]:
    """Transcripts of three questions, as a run's journal keeps them."""
    agent = build_controller(AGENT)
    agent.adopt(open_model(precision="float32"))
    agent.reset(task())
    seen = episode()
    found = []
    for number in QUESTIONS:
        decision = agent.decide(seen[number])
        assert decision.outcome == "valid"
        found.append({**(decision.details or {}), "p_replace": decision.p_replace})
    agent.close()
    static = found[0]["static"]  # with the first one only
    return [{**transcript, "static": static} for transcript in found]


def asked_again(backend: LocalBackend, transcript: dict[str, Any]) -> tuple[float, dict[str, str]]:
    """p(replace), and the likeliest value of each field."""
    prompt = Prompt(transcript["static"], transcript["dynamic"])
    assert prompt.digest == transcript["prompt"]
    scores = backend.score(prompt, FIELDS, likeliest).logprobs
    p_replace = math.exp(scores["decision"]["replace"])
    return p_replace, {field: likeliest(field, values) for field, values in scores.items()}


def as_recorded(backend: LocalBackend, transcripts: list[dict[str, Any]]) -> bool:
    return all(
        (p_replace, answer)
        == (
            pytest.approx(transcript["p_replace"], abs=TOLERANCE),
            {field: likeliest(field, transcript["scores"][field]) for field in FIELDS},
        )
        for transcript in transcripts
        for p_replace, answer in [asked_again(backend, transcript)]
    )


def test_the_same_weights_give_the_same_answers(recorded: list[dict[str, Any]]) -> None:
    """Loaded anew, with nothing kept of what was asked before."""
    again = LocalBackend(MODEL, precision="float32", reuse=False)
    again.open(silent)
    assert {transcript["weights"] for transcript in recorded} == {again.facts()["weights"]}
    assert as_recorded(again, recorded)
    again.close()
    assert len({round(transcript["p_replace"], 3) for transcript in recorded}) == len(QUESTIONS)


def test_other_weights_do_not_pass(recorded: list[dict[str, Any]], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(find_weights(MODEL, silent).folder, tmp_path / "other")
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * 1.05
    save_file(tensors, weights, {"format": "pt"})
    other = LocalBackend(str(folder), precision="float32")
    other.open(silent)
    assert other.facts()["weights"] not in {transcript["weights"] for transcript in recorded}
    assert not as_recorded(other, recorded)
    other.close()
    weights.unlink()
    agent = build_controller(f'{AGENT},model="{folder}"')
    with pytest.raises(ControllerError, match=f"{folder} holds no config.json with safetensors"):
        agent.reset(task())
