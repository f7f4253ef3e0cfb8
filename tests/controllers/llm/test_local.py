"""The local backend with the real model: scores, kept state, written answers, precisions."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rudder_controllers.llm.answers import answer_schema, parse_answer
from rudder_controllers.llm.backends import local, precision, reading
from rudder_controllers.llm.backends.base import BackendError, Scored
from rudder_controllers.llm.backends.local import LocalBackend
from rudder_controllers.llm.backends.precision import PRECISIONS, usable
from rudder_controllers.llm.backends.weights import find_weights
from rudder_controllers.llm.prompt import Prompt, PromptBuilder, Template

from rudder.conformance.situations import episode, task
from rudder.errors import ControllerError, SpecError

from .conftest import FIELDS, GOLDEN, MODEL, likeliest, recorded, silent

pytestmark = pytest.mark.llm

Open = Callable[..., LocalBackend]
STATIC = "You steer a cache. Say replace or keep."
LOW = Prompt(STATIC, "hits low, falling; stale almost all -> ?")
HIGH = Prompt(STATIC, "hits high, steady; stale almost none -> ?")
OTHER = Prompt("You count sheep.", "One sheep, two sheep.")


def ask(backend: LocalBackend, prompt: Prompt) -> Scored:
    return backend.score(prompt, FIELDS, likeliest)


def total(logprobs: Mapping[str, float]) -> float:
    return math.fsum(map(math.exp, logprobs.values()))


def same(one: Scored, other: Scored, tolerance: float = 1e-3) -> None:
    for field, logprobs in one.logprobs.items():
        assert logprobs == pytest.approx(other.logprobs[field], abs=tolerance), field


def test_scores_are_log_probabilities_of_what_can_be_answered(model: LocalBackend) -> None:
    for prompt in (LOW, HIGH):
        found = ask(model, prompt)
        assert list(found.logprobs) == list(FIELDS)
        for field, values in FIELDS.items():
            assert tuple(found.logprobs[field]) == values
            assert total(found.logprobs[field]) == pytest.approx(1.0, abs=1e-6)
            assert max(found.logprobs[field].values()) < 0
    assert ask(model, LOW).logprobs != ask(model, HIGH).logprobs


def test_kept_state_changes_nothing(model: LocalBackend, open_model: Open) -> None:
    whole = open_model(reuse=False)
    first, again = ask(model, LOW), ask(model, LOW)
    assert first.usage.reused_tokens == 0
    assert 0 < again.usage.reused_tokens < again.usage.prompt_tokens
    assert again.usage.prompt_tokens == first.usage.prompt_tokens
    same(first, again)
    for _ in range(2):
        unkept = ask(whole, LOW)
        assert unkept.usage.reused_tokens == 0
        same(unkept, again)


def test_other_questions_leave_the_state_alone(model: LocalBackend) -> None:
    first = ask(model, LOW)
    ask(model, HIGH)
    ask(model, OTHER)
    model.generate(
        HIGH, {"properties": {"x": {"type": "string", "enum": ["yes"]}}, "type": "object"}
    )
    same(ask(model, LOW), first)


def test_a_prompt_is_read_from_where_it_differs(open_model: Open) -> None:
    """Whatever was asked before: the same scores as of a model that keeps nothing."""
    backend, whole = open_model(precision="float32"), open_model(precision="float32", reuse=False)
    backend._kept.clear()
    lines = ["hits low, falling after keep", "hits high, rising after replace"]
    asked = ["-> ?", f"{lines[0]}\n-> ?", "\n".join([*lines, "-> ?"]), f"{lines[1]}\n-> ?", "-> ?"]
    reused = []
    for dynamic in asked:
        found = ask(backend, Prompt(STATIC, dynamic))
        same(found, ask(whole, Prompt(STATIC, dynamic)), 1e-4)
        reused.append(found.usage.reused_tokens)
    static = len(backend._ids(backend._rendered(STATIC)[0]))
    assert reused[0] == 0
    assert reused[1] == static  # nothing but the static part is the same
    assert reused[2] >= static + len(backend._ids(lines[0]))
    assert static <= reused[3] < reused[2]
    # The same again: all but the last token, whose state is needed.
    again = ask(backend, Prompt(STATIC, asked[-1])).usage
    assert again.reused_tokens == again.prompt_tokens - 1
    backend.begin(STATIC)
    assert ask(backend, Prompt(STATIC, asked[-1])).usage.reused_tokens == static


class Broken(Exception):
    """Raised in the middle of a question."""


@pytest.mark.parametrize("before", [0, 1], ids=["at first", "later"])
def test_an_error_in_the_middle_leaves_the_state_alone(model: LocalBackend, before: int) -> None:
    expected = ask(model, LOW)
    model._kept.clear()
    for _ in range(before):
        ask(model, LOW)

    def broken(field: str, logprobs: Mapping[str, float]) -> str:
        if field == "expected_hits":
            raise Broken
        return "replace"

    with pytest.raises(Broken):
        model.score(LOW, FIELDS, broken)
    same(ask(model, LOW), expected)
    same(ask(model, LOW), expected)


def test_a_question_that_is_too_long_is_refused(model: LocalBackend) -> None:
    expected = ask(model, LOW)
    with pytest.raises(BackendError, match="too long") as caught:
        ask(model, Prompt(STATIC, "sheep " * model.context))
    assert caught.value.trouble == "too long"
    same(ask(model, LOW), expected)


def test_the_state_of_old_static_parts_is_let_go(
    model: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "KEPT", 2)
    prompts = [Prompt(f"You are number {n}.", "Well?") for n in range(3)]
    for prompt in prompts:
        ask(model, prompt)
    assert len(model._kept) == 2
    assert ask(model, prompts[2]).usage.reused_tokens > 0
    assert ask(model, prompts[0]).usage.reused_tokens == 0


def test_candidates_that_begin_alike(model: LocalBackend) -> None:
    """Their common beginning is worth what they are worth together."""
    values = ("stagnant", "steady", "state of the art", "state machine", "keep")
    ids = {value: model._ids(value) for value in values}
    assert len({ids[value][0] for value in values}) < len(values)

    def scored(candidates: tuple[str, ...]) -> Mapping[str, float]:
        return model.score(LOW, {"trend": candidates}, likeliest).logprobs["trend"]

    found = scored(values)
    assert total(found) == pytest.approx(1.0, abs=1e-6)
    pair = [math.exp(found[value]) for value in values[2:4]]
    only = scored(("state", "stagnant", "steady", "keep"))
    assert sum(pair) == pytest.approx(math.exp(only["state"]), abs=1e-3)
    alone = scored(values[2:4])
    assert pair[0] / sum(pair) == pytest.approx(math.exp(alone["state of the art"]), abs=2e-3)


def test_tokens_are_counted_and_budgets_hold(model: LocalBackend) -> None:
    assert model.count_tokens("") == 0
    assert model.count_tokens("replace") == 1
    long = PromptBuilder(
        Template.load("brief-v1"), task().facts, count_tokens=model.count_tokens, budget=4000
    )
    whole = long.build(episode()[-1])
    budget = model.count_tokens(whole.static) + model.count_tokens(whole.dynamic) - 10
    builder = PromptBuilder(
        Template.load("brief-v1"), task().facts, count_tokens=model.count_tokens, budget=budget
    )
    cut = builder.build(episode()[-1])
    assert len(cut.dynamic) < len(whole.dynamic)
    found = ask(model, cut).usage
    around = len(model._ids("".join(model._rendered(cut.static)))) - model.count_tokens(cut.static)
    assert found.prompt_tokens <= budget + around + 2
    assert found.prompt_tokens == pytest.approx(
        model.count_tokens(cut.static) + model.count_tokens(cut.dynamic) + around, abs=2
    )


# --- The same weights give the same answers; that others do not: test_not_a_constant.py. ---

RECORDED = ("steer-v2-words", "brief-v1-words", "steer-v2-renew", "steer-v2-calm")


def answers(backend: LocalBackend) -> dict[str, dict[str, Any]]:
    """Of the recorded prompts: what was decided, and p(replace)."""
    found = {}
    for name in RECORDED:
        scored = ask(backend, recorded(name))
        found[name] = {
            **{field: likeliest(field, values) for field, values in scored.logprobs.items()},
            "p_replace": math.exp(scored.logprobs["decision"]["replace"]),
        }
    return found


def expected_answers() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((GOLDEN / "answers.json").read_text())
    return found


def as_recorded(found: dict[str, dict[str, Any]]) -> bool:
    return all(
        {**found[name], "p_replace": None} == {**expected, "p_replace": None}
        and abs(found[name]["p_replace"] - expected["p_replace"]) <= 0.005
        for name, expected in expected_answers().items()
    )


def test_recorded_prompts_get_their_answers(open_model: Open) -> None:
    """In float32, which comes out alike on all CPUs. RUDDER_WRITE_GOLDEN writes them anew."""
    found = answers(open_model(precision="float32"))
    if "RUDDER_WRITE_GOLDEN" in os.environ:
        told = {n: {**a, "p_replace": round(a["p_replace"], 4)} for n, a in found.items()}
        (GOLDEN / "answers.json").write_text(json.dumps(told, indent=1) + "\n")
    assert as_recorded(found), found
    # Not one answer for all: plain situations are told apart.
    assert len({round(a["p_replace"], 2) for a in found.values()}) == len(RECORDED)
    assert found["steer-v2-renew"]["decision"] == "replace"
    assert found["steer-v2-calm"]["decision"] == "keep"


def test_facts_tell_what_was_asked(open_model: Open) -> None:
    facts = open_model().facts()
    assert facts["weights"] == find_weights(MODEL, silent).digest
    assert (facts["precision"], facts["precision_asked"]) == ("bf16", "bf16")
    assert (facts["threads"], facts["model"]) == (1, MODEL)
    json.dumps(facts)


# --- Written answers. ---


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are brought to their end as soon as the decisions stand: most are cut."""
    monkeypatch.setattr(local, "MAX_NEW_TOKENS", 66)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("prompt", [LOW, OTHER], ids=["steer", "sheep"])
def test_what_is_written_is_an_answer(
    model: LocalBackend, prompt: Prompt, seed: int | None
) -> None:
    written = model.generate(prompt, answer_schema(), seed)
    parse_answer(written.text)
    assert 20 < written.usage.answer_tokens <= 66 + reading.TO_END


@pytest.mark.usefixtures("short")
def test_a_seed_fixes_what_is_written(model: LocalBackend) -> None:
    texts = [model.generate(LOW, answer_schema(), seed).text for seed in (5, 5, 6, None, None)]
    assert texts[0] == texts[1] != texts[2]
    assert texts[3] == texts[4]


@pytest.mark.full
@pytest.mark.parametrize("limit", [66, 80, 110, local.MAX_NEW_TOKENS])
def test_a_drawn_answer_is_valid_wherever_it_is_cut(
    model: LocalBackend, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(local, "MAX_NEW_TOKENS", limit)
    for seed in range(5):
        parse_answer(model.generate(OTHER, answer_schema(), seed).text)
    if limit == local.MAX_NEW_TOKENS:
        parse_answer(model.generate(recorded("steer-v2-both"), answer_schema()).text)


# --- Precisions. ---


@pytest.mark.full
@pytest.mark.parametrize("name", PRECISIONS)
def test_every_precision_answers_on_the_cpu(open_model: Open, name: str) -> None:
    backend = open_model(precision=name)
    facts = backend.facts()
    assert (facts["precision"], facts["precision_asked"]) == (name, name)
    assert facts["weights"] == find_weights(MODEL, silent).digest
    found = answers(backend)
    for values in ask(backend, LOW).logprobs.values():
        assert total(values) == pytest.approx(1.0, abs=1e-6)
    backend._kept.clear()
    assert answers(backend) == found
    written = []
    for _ in range(2):
        # int8 scales what is read together: what was kept is a part of what was asked.
        backend._kept.clear()
        written.append(backend.generate(LOW, answer_schema(), seed=3).text)
    assert written[0] == written[1]
    parse_answer(written[0])
    if name != "nf4":  # at four bits a model of this size answers otherwise
        exact = expected_answers()
        apart = max(abs(found[n]["p_replace"] - exact[n]["p_replace"]) for n in RECORDED)
        assert apart < {"float32": 0.005, "bf16": 0.03, "int8": 0.15}[name]


@pytest.mark.full
@pytest.mark.parametrize(("name", "least", "most"), [("int8", 0.002, 0.02), ("nf4", 0.05, 0.12)])
def test_quantised_weights_are_near_the_exact_ones(
    open_model: Open, name: str, least: float, most: float
) -> None:
    """Root mean square of the error, relative to that of the weights, layer by layer.

    Normally distributed weights come to 0.09 with the 16 levels of nf4, each block of 64 scaled by
    its greatest, and to 0.008 with 255 levels, each row scaled by its greatest.
    """
    exact = dict(open_model(precision="float32")._model.named_modules())
    backend = open_model(precision=name)
    layers = {n: m for n, m in backend._model.named_modules() if "_proj" in n}
    assert len(layers) == 7 * backend._model.config.num_hidden_layers
    for path, layer in layers.items():
        wanted = exact[path].weight.detach()
        error = (dequantised(layer) - wanted).square().mean().sqrt()
        assert least < float(error / wanted.square().mean().sqrt()) < most, path


def dequantised(layer: Any) -> Any:
    """Weights of a layer that bitsandbytes quantised, in float32."""
    import bitsandbytes as bnb

    if isinstance(layer, bnb.nn.Linear4bit):
        state = layer.weight.quant_state
        assert state.quant_type == "nf4"
        return bnb.functional.dequantize_4bit(layer.weight.data, state).float()
    assert isinstance(layer, bnb.nn.Linear8bitLt)
    scales = layer.weight.SCB if layer.weight.SCB is not None else layer.state.SCB
    return layer.weight.data.float() * scales.float()[:, None] / 127


def test_a_precision_without_its_library_falls_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(precision.importlib.util, "find_spec", lambda name: None)
    with caplog.at_level(logging.WARNING):
        assert usable("nf4", "float32") == "float32"
        assert usable("bf16", "float32") == "bf16"
    [told] = [record.getMessage() for record in caplog.records]
    assert "nf4 needs bitsandbytes, which is not installed; using float32" in told


def test_a_precision_that_cannot_be_loaded_falls_back_and_is_recorded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = LocalBackend._loaded

    def refuse(backend: LocalBackend, asked: precision.Precision) -> Any:
        if asked == "nf4":
            raise RuntimeError("no kernel for this CPU")
        return loaded(backend, asked)

    monkeypatch.setattr(LocalBackend, "_loaded", refuse)
    backend = LocalBackend(MODEL, precision="nf4", fallback="bf16")
    with caplog.at_level(logging.WARNING):
        backend.open(silent)
    facts = backend.facts()
    assert (facts["precision"], facts["precision_asked"]) == ("bf16", "nf4")
    assert any("no kernel for this CPU); using bf16" in r.getMessage() for r in caplog.records)
    assert ask(backend, LOW).logprobs
    backend.close()
    with pytest.raises(ControllerError, match="cannot be loaded as nf4: no kernel"):
        LocalBackend(MODEL, precision="nf4", fallback="nf4").open(silent)


def test_starting_leaves_out_what_is_not_needed() -> None:
    """transformers imports scikit-learn, SciPy and pandas with any model, where they are there."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", IMPORTED, MODEL], capture_output=True, text=True, check=True
    )
    found = set(done.stdout.split())
    assert "transformers.models.llama.modeling_llama" in found
    assert not found & {"sklearn", "scipy", "pandas", "bitsandbytes", "xgrammar", "dgl"}


IMPORTED = """
import importlib, sys
from rudder_controllers.llm.backends.local import LocalBackend

LocalBackend(sys.argv[1]).prepare(lambda phase, share: None)
importlib.import_module("transformers.models.llama.modeling_llama")
print(*sys.modules)
"""


def test_wrong_values_are_named() -> None:
    with pytest.raises(SpecError, match="precision must be one of float32, bf16, int8, nf4"):
        LocalBackend(MODEL, precision="fp4")
    with pytest.raises(SpecError, match="threads must be a count from 1"):
        LocalBackend(MODEL, threads=0)


# --- Families of models: the same scores as the model's own head gives. ---


def family(name: str) -> Any:
    """A model of a family with a few thousand weights, but the real tokenizer's vocabulary."""
    import torch
    import transformers as t

    common = {
        "vocab_size": 49_152, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "bos_token_id": 1,
        "eos_token_id": 2, "pad_token_id": 2, "initializer_range": 0.4,
    }  # fmt: skip
    torch.manual_seed(0)
    if name == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(**common))
    if name == "qwen2":
        return t.Qwen2ForCausalLM(t.Qwen2Config(**common))
    if name == "gemma3":
        config = t.Gemma3TextConfig(**common, sliding_window=16, sliding_window_pattern=2)
        return t.Gemma3ForCausalLM(config)
    if name == "gemma3 with images":
        vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
                  "num_attention_heads": 2, "image_size": 28, "patch_size": 14}  # fmt: skip
        both = t.Gemma3Config(
            text_config={**common, "sliding_window": 16},
            vision_config=vision,
            mm_tokens_per_image=4,
        )
        return t.Gemma3ForConditionalGeneration(both)
    if name == "granite moe":
        config = t.GraniteMoeConfig(
            **common, num_local_experts=4, num_experts_per_tok=2, logits_scaling=6.0,
            embedding_multiplier=12.0, attention_multiplier=0.015625,
        )  # fmt: skip
        return t.GraniteMoeForCausalLM(config)
    return t.MixtralForCausalLM(t.MixtralConfig(**common, num_local_experts=4))


@pytest.mark.parametrize(
    "name", ["llama", "qwen2", "gemma3", "gemma3 with images", "granite moe", "mixtral"]
)
def test_families_of_models(name: str, tmp_path: Path) -> None:
    family(name).save_pretrained(tmp_path, safe_serialization=True)
    for path in find_weights(MODEL, silent).folder.glob("*"):
        if "token" in path.name or path.suffix == ".jinja":
            shutil.copy(path, tmp_path)
    backend = LocalBackend(str(tmp_path), precision="float32")
    backend.open(silent)  # compares its scores with the model's own logits
    first = ask(backend, LOW)
    ask(backend, HIGH)
    again = ask(backend, LOW)
    assert again.usage.reused_tokens > 16
    same(first, again, 1e-4)
    parse_answer(backend.generate(LOW, answer_schema(), seed=1).text)
    backend.close()


def test_a_family_whose_logits_are_made_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family("granite moe").save_pretrained(tmp_path, safe_serialization=True)
    for path in find_weights(MODEL, silent).folder.glob("*"):
        if "token" in path.name or path.suffix == ".jinja":
            shutil.copy(path, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    monkeypatch.setattr(reading.Reading, "logits", _unscaled)
    assert config["logits_scaling"] == 6.0
    with pytest.raises(ControllerError, match="cannot be asked here"):
        LocalBackend(str(tmp_path), precision="float32").open(silent)


def _unscaled(reading: Any, ids: Any = None) -> Any:
    """What a backend that does not know of the factor would make."""
    return reading.model.get_output_embeddings()(reading.hidden).float()


def test_a_template_that_makes_its_model_think_is_answered_at_once(
    open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_model()
    thinking = backend._tokenizer.chat_template.replace(
        "<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n"
    )
    assert thinking != backend._tokenizer.chat_template
    monkeypatch.setattr(backend._tokenizer, "chat_template", thinking)
    assert backend.rendered(LOW, {}).endswith("<think>\n\n</think>\n\n")
