"""What a model is shown: a static part, read once per run, and a dynamic part per question."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudder.errors import SpecError
from rudder.observation import Facts, Observation, Past
from rudder.toml import read_toml

from . import words
from .incontext import Example

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

TEMPLATES = Path(__file__).parent / "templates"
OPTIONAL = ("rules", "graph", "glossary", "examples", "shots", "history", "reward", "window")
"""Parts that an ablation may leave out; ``reward`` is a part of the history."""


@dataclass(frozen=True)
class Prompt:
    """A question as a model is shown it.

    Attributes:
        static: the same for all questions of a trainer's run; the system's turn.
        dynamic: of this question; the user's turn.
    """

    static: str
    dynamic: str

    @property
    def digest(self) -> str:
        """SHA-256 over both parts, 16 hex digits."""
        text = f"{self.static}\0{self.dynamic}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Template:
    """A prompt's texts, from a file.

    Attributes:
        name: of the file, with its version: ``steer-v2``.
        static, dynamic: texts of the parts by name, in order.
        digest: SHA-256 over the file, 16 hex digits.
    """

    name: str
    static: Mapping[str, str]
    dynamic: Mapping[str, str]
    digest: str

    @classmethod
    def load(cls, name: str) -> Template:
        """A template by name, or from a TOML file.

        Raises:
            SpecError: no such template, or a file that is none.
        """
        path = cls.file(name)
        data = read_toml(path)
        static, dynamic = data.get("static"), data.get("dynamic")
        for part, texts in (("static", static), ("dynamic", dynamic)):
            if not isinstance(texts, dict) or not all(isinstance(t, str) for t in texts.values()):
                raise SpecError(f"{path}: needs a table [{part}] of texts")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        return cls(path.stem, static or {}, dynamic or {}, digest)

    @staticmethod
    def file(name: str) -> Path:
        """Where a template lies.

        Raises:
            SpecError: nowhere.
        """
        path = Path(name).expanduser() if name.endswith(".toml") else TEMPLATES / f"{name}.toml"
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in TEMPLATES.glob("*.toml")))
            raise SpecError(f"no prompt template {name!r}; there are {known}, or give a .toml file")
        return path


class PromptBuilder:
    """Makes the prompts of one trainer's run.

    Args:
        template: texts.
        facts: of the run.
        style: numbers as figures, words or both.
        without: parts that are left out.
        count_tokens: of a text, by the model's tokenizer.
        budget: tokens that a prompt may have; history is cut to fit, oldest first, then examples.

    Raises:
        SpecError: a part that cannot be left out, a template that does not render, or a budget that
            the shortest prompt exceeds.
    """

    def __init__(
        self,
        template: Template,
        facts: Facts,
        *,
        style: words.Style = "words",
        without: Sequence[str] = (),
        count_tokens: Callable[[str], int],
        budget: int,
    ) -> None:
        unknown = [part for part in without if part not in OPTIONAL]
        if unknown:
            raise SpecError(
                f"without={','.join(unknown)}: parts that can be left out are {', '.join(OPTIONAL)}"
            )
        self._facts, self._style = facts, style
        self._without = frozenset(without)
        self._template = template
        self._count_tokens, self._budget = count_tokens, budget
        self._environment = _environment()
        self.static = self._render(template.static, {"facts": facts})
        self._static_tokens = count_tokens(self.static)
        self._oldest = -1

    def build(self, observation: Observation, shots: Sequence[Example] = ()) -> Prompt:
        """The prompt of one question."""
        history = [_line(past) for past in self._recent(observation.history)]
        shots = list(shots)
        while True:
            dynamic = self._render(
                self._template.dynamic,
                {
                    "facts": self._facts,
                    "o": observation,
                    "w": observation.window,
                    "history": history,
                    "shots": shots,
                    "with_reward": "reward" not in self._without,
                },
            )
            if self._static_tokens + self._count_tokens(dynamic) <= self._budget:
                return Prompt(self.static, dynamic)
            if history:
                del history[0]
            elif shots:
                del shots[0]
            else:
                raise SpecError(
                    f"the shortest prompt of template {self._template.name!r} has "
                    f"{self._static_tokens + self._count_tokens(dynamic)} tokens, more than the "
                    f"budget of {self._budget}; raise budget, or choose a shorter template"
                )

    def _recent(self, history: Sequence[Past]) -> list[Past]:
        """The newer part of a history: whenever its oldest line has to go, half of them go.

        In between lines are only appended, so that a model can read on from the prompt before.
        """
        if history and self._oldest < history[0].minibatch:
            newest_half = 0 if self._oldest < 0 else len(history) // 2
            self._oldest = history[newest_half].minibatch
        return [past for past in history if past.minibatch >= self._oldest]

    def _render(self, parts: Mapping[str, str], context: Mapping[str, Any]) -> str:
        from jinja2 import TemplateError

        tell: dict[str, Any] = {
            name: functools.partial(getattr(words, name), style=self._style)
            for name in ("share", "change", "points", "count")
        }
        tell["reward"] = lambda value: words.reward(value, self._facts.feature_bytes, self._style)
        found = []
        for name, text in parts.items():
            if name in self._without:
                continue
            try:
                rendered = self._environment.from_string(text).render(**tell, **context).strip()
            except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise SpecError(
                    f"template {self._template.name!r}, part {name}: {error}"
                ) from error
            if rendered:
                found.append(rendered)
        return "\n\n".join(found)


def _environment() -> SandboxedEnvironment:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    # A template may come from somebody else's file: it can read what it is given, no more.
    return SandboxedEnvironment(undefined=StrictUndefined, autoescape=False)


def _line(past: Past) -> dict[str, Any]:
    return {
        "minibatch": past.minibatch,
        "decision": "replace" if past.decision.replace else "keep",
        "settled": past.window > 0,
        "hit_rate_change": past.hit_rate_change,
        "communication_change": past.communication_change,
        "reward": past.reward,
    }
