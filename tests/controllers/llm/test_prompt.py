"""Prompts: one golden file per template, budgets, ablations, words for numbers."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
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


def built(template: str = "steer-v2", budget: int = 5_000, **options: Any) -> tuple[str, str]:
    """The prompt at the end of the episode, with two examples."""
    observations, experience = episode(), Experience(2, "balanced")
    for observation in observations:
        experience.see(observation)
    builder = PromptBuilder(
        Template.load(template), task().facts, count_tokens=by_words, budget=budget, **options
    )
    prompt = builder.build(observations[-1], experience.chosen(observations[-1].window))
    return prompt.static, prompt.dynamic


def golden(name: str, static: str, dynamic: str) -> None:
    """Set RUDDER_WRITE_GOLDEN to write the files anew, and read what changed."""
    text = f"{static}\n\n=== dynamic ===\n\n{dynamic}\n"
    path = GOLDEN / f"{name}.txt"
    if "RUDDER_WRITE_GOLDEN" in os.environ:
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize("style", words.STYLES)
@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str, style: words.Style) -> None:
    golden(f"{name}-{style}", *built(name, style=style))


PLAIN = {
    "renew": {"hit_rate": 0.15, "hit_rate_change": -0.08, "stale_share": 0.9,
              "communication_change": 0.2},
    "calm": {"hit_rate": 0.9, "hit_rate_change": 0.03, "stale_share": 0.02,
             "communication_change": -0.05},
}  # fmt: skip
"""Situations whose answer is plain: replace, keep."""


@pytest.mark.parametrize("name", PLAIN)
def test_golden_situations(name: str) -> None:
    last = episode()[-1]
    window = dataclasses.replace(last.window, **PLAIN[name])
    builder = PromptBuilder(
        Template.load("steer-v2"), task().facts, count_tokens=by_words, budget=5_000
    )
    prompt = builder.build(dataclasses.replace(last, window=window, history=()))
    golden(f"steer-v2-{name}", prompt.static, prompt.dynamic)


LINE, SHOT = re.compile(r"after (?:replace|keep)$", re.M), "-> {}: hits"


def lines(dynamic: str) -> int:
    return len(LINE.findall(dynamic))


def shots(dynamic: str) -> int:
    return sum(dynamic.count(SHOT.format(decision)) for decision in ("replace", "keep"))


def test_a_budget_cuts_history_oldest_first_then_examples() -> None:
    static, whole = built()
    settled = sum(past.window > 0 for past in episode()[-1].history)
    told = LINE.split(whole)[:settled]
    for left in range(settled - 1, -1, -1):
        _, whole = built(budget=by_words(static) + by_words(whole) - 1)
        assert (lines(whole), shots(whole)) == (left, 2)
        assert LINE.split(whole)[1:left] == told[settled - left + 1 :]  # the newest ones
    _, shorter = built(budget=by_words(static) + by_words(whole) - 1)
    assert shots(shorter) == 1
    with pytest.raises(SpecError, match="more than the budget"):
        built(budget=by_words(static) + 5)


def test_history_grows_until_half_of_it_goes() -> None:
    """From one prompt to the next lines are appended, and only then."""
    builder = PromptBuilder(
        Template.load("steer-v2"),
        task().facts,
        without=["shots", "window"],
        count_tokens=by_words,
        budget=5_000,
    )
    told = [builder.build(observation).dynamic for observation in episode()]
    grown = [later.startswith(before) for before, later in itertools.pairwise(told)]
    # At 5, 8, 11 and 14 a replacement settles, later than what was decided after it; at 9 and again
    # at 14 the oldest line has left the history of 8.
    assert [n for n, same in enumerate(grown, 1) if not same] == [5, 8, 9, 11, 14]
    settled = [sum(past.window > 0 for past in o.history) for o in episode()]
    assert [lines(dynamic) for dynamic in told[:9]] == settled[:9]
    assert [lines(dynamic) for dynamic in told[9:]] == [3, 4, 5, 6, 7, 3, 4]


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("rules", "Rules of the buffer"),
        ("graph", "This run: graph of"),
        ("glossary", "traffic: communication, rows fetched"),
        ("examples", "Examples of good decisions"),
        ("shots", "Your decisions and what followed"),
        ("history", "Last decisions"),
        ("reward", "gained after"),
        ("window", "-> ?"),
    ],
)
def test_an_ablation_leaves_out_its_part_only(part: str, told: str) -> None:
    whole, less = "\n\n".join(built()), "\n\n".join(built(without=[part]))
    assert told in whole
    assert told not in less
    for other in ("You steer a cache", "Answer with one JSON object"):
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
        Template.load("steer-v2"), task().facts, count_tokens=by_words, budget=5_000
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
    assert words.reward(-1_000.0, 100, "both") == "lost (-10 rows)"
    assert words.reward(0.0, 0, "words") == "came out even"
