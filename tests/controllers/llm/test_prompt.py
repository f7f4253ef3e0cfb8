"""Prompts: one golden file per template, budgets, ablations, words for numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from rudder_controllers.llm import words
from rudder_controllers.llm.incontext import Experience
from rudder_controllers.llm.prompt import OPTIONAL, TEMPLATES, PromptBuilder, Template

from rudder.conformance.situations import episode, task
from rudder.errors import SpecError

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in TEMPLATES.glob("*.toml"))


def by_words(text: str) -> int:
    return len(text.split())


def built(template: str = "steer-v1", budget: int = 5_000, **options: Any) -> tuple[str, str]:
    """The prompt at the end of the episode, with two examples."""
    observations, experience = episode(), Experience(2, "balanced")
    for observation in observations:
        experience.see(observation)
    builder = PromptBuilder(
        Template.load(template), task().facts, count_tokens=by_words, budget=budget, **options
    )
    prompt = builder.build(observations[-1], experience.chosen(observations[-1].window))
    return prompt.static, prompt.dynamic


@pytest.mark.parametrize("style", words.STYLES)
@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str, style: words.Style) -> None:
    """Set RUDDER_WRITE_GOLDEN to write the files anew, and read what changed."""
    static, dynamic = built(name, style=style)
    text = f"{static}\n\n=== dynamic ===\n\n{dynamic}\n"
    path = GOLDEN / f"{name}-{style}.txt"
    if "RUDDER_WRITE_GOLDEN" in os.environ:
        path.write_text(text)
    assert path.read_text() == text


def test_a_budget_cuts_history_oldest_first_then_examples() -> None:
    static, whole = built()
    minibatches = [p.minibatch for p in episode()[-1].history]
    for cut in range(1, len(minibatches) + 1):
        budget = by_words(static) + by_words(whole) - 1
        _, whole = built(budget=budget)
        for minibatch in minibatches[:cut]:
            assert f"minibatch {minibatch}:" not in whole
        for minibatch in minibatches[cut:]:
            assert f"minibatch {minibatch}:" in whole
        assert whole.count("You answered") == 2
    _, shorter = built(budget=by_words(static) + by_words(whole) - 1)
    assert shorter.count("You answered") == 1
    with pytest.raises(SpecError, match="more than the budget"):
        built(budget=by_words(static) + 5)


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("rules", "Rules of the buffer"),
        ("graph", "This run: graph of"),
        ("glossary", "communication: rows fetched"),
        ("shots", "You answered"),
        ("history", "Last decisions"),
        ("reward", "), reward "),
        ("window", "Now, after minibatch"),
    ],
)
def test_an_ablation_leaves_out_its_part_only(part: str, told: str) -> None:
    whole, less = "\n\n".join(built()), "\n\n".join(built(without=[part]))
    assert told in whole
    assert told not in less
    for other in ("You steer a cache", "Answer with one JSON object", "Replace or keep?"):
        assert other in less
    assert part in OPTIONAL


def test_wrong_parts_and_templates_are_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="without=role: parts that can be left out are rules"):
        built(without=["role"])
    with pytest.raises(SpecError, match="no prompt template 'steer-v0'; there are brief-v1"):
        Template.load("steer-v0")
    path = tmp_path / "mine.toml"
    path.write_text('[static]\nrole = "{{ facts.nodes }"\n[dynamic]\nwindow = "x"\n')
    with pytest.raises(SpecError, match="template 'mine', part role"):
        built(str(path))
    path.write_text('[static]\nrole = "{{ nothing_known }}"\n[dynamic]\nwindow = "x"\n')
    with pytest.raises(SpecError, match="nothing_known"):
        built(str(path))
    path.write_text("[static]\nrole = 3\n")
    with pytest.raises(SpecError, match=r"needs a table \[static\]"):
        built(str(path))


def test_a_template_cannot_reach_out(tmp_path: Path) -> None:
    path = tmp_path / "spy.toml"
    path.write_text(
        '[static]\nrole = "{{ facts.__class__.__mro__[1].__subclasses__() }}"\n'
        '[dynamic]\nwindow = "x"\n'
    )
    with pytest.raises(SpecError, match="unsafe"):
        built(str(path))


def test_digests_tell_prompts_and_templates_apart() -> None:
    observations = episode()
    builder = PromptBuilder(
        Template.load("steer-v1"), task().facts, count_tokens=by_words, budget=5_000
    )
    prompts = [builder.build(o) for o in observations]
    assert len({p.digest for p in prompts}) == len(prompts)
    assert {p.static for p in prompts} == {builder.static}
    assert len({Template.load(name).digest for name in NAMES}) == len(NAMES)


@pytest.mark.parametrize(
    ("told", "figure", "word"),
    [
        (words.share, "57 %", "medium"),
        (words.change, "+57 %", "rising fast"),
        (words.points, "+57.0 points", "rising fast"),
    ],
)
def test_styles(told: Any, figure: str, word: str) -> None:
    assert told(0.57, "figures") == figure
    assert told(0.57, "words") == word
    assert told(0.57, "both") == f"{word} ({figure})"


def test_words_change_where_effects_do() -> None:
    # One point of %-Hits and 2 % of communication are the least that counts as a change.
    assert words.points(0.0099, "words") == words.points(-0.0099, "words") == "steady"
    assert words.points(0.0101, "words") == "rising"
    assert words.change(-0.021, "words") == "falling"
    assert words.change(0.019, "words") == "steady"
    assert words.count(12_400, "both") == "thousands (12,400)"
    assert words.reward(-1_000.0, 100, "both") == "it cost more than it saved (-10 rows)"
    assert words.reward(0.0, 0, "words") == "it changed nothing"
