"""The contract of a backend: scores answers, or writes one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rudder.errors import ControllerError

from ..prompt import Prompt

Told = Callable[[str, float], None]
Choose = Callable[[str, Mapping[str, float]], str]
BYTES_PER_TOKEN = 2.5
"""Where the tokenizer is not known: fewer bytes per token than any common one has for English."""
Trouble = Literal["refused", "timeout", "http", "broken", "too long", "circuit open"]


def estimated_tokens(text: str) -> int:
    """Tokens of a text at most, where the tokenizer is not known."""
    return int(len(text.encode()) / BYTES_PER_TOKEN) + 1


class BackendError(ControllerError):
    """A backend gave no text to validate.

    Attributes:
        trouble: the kind, for counting.
    """

    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(f"{trouble}: {message}")
        self.trouble = trouble


@dataclass(frozen=True)
class Usage:
    """Tokens of one question: in the prompt, of these reused from before, and written."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    answer_tokens: int = 0


@dataclass(frozen=True)
class Scored:
    """Log-probabilities of the possible values of each field of an answer.

    Attributes:
        logprobs: by field and value, natural logarithm; the values of a field add up to 1.
        usage: tokens.
    """

    logprobs: Mapping[str, Mapping[str, float]]
    usage: Usage = Usage()


@dataclass(frozen=True)
class Generated:
    """A text that a model wrote.

    Attributes:
        text: as it came.
        usage: tokens.
        notes: what the backend found out on the way, such as a server that ignores the schema.
    """

    text: str
    usage: Usage = Usage()
    notes: Mapping[str, Any] = field(default_factory=dict)


class Backend(ABC):
    """A language model. One object serves all trainers of a host, one question at a time.

    Attributes:
        scores: can it score (:meth:`score`)?
        context: tokens that prompt and answer may have together.
    """

    scores: bool = False
    context: int = 4096

    @abstractmethod
    def open(self, progress: Told) -> None:
        """Load the model, or reach the server.

        Raises:
            ControllerError: says what is missing and how to get it.
        """

    @abstractmethod
    def prepare(self, progress: Told) -> None:
        """The part of :meth:`open` that counting tokens and rendering prompts needs; no model.

        Raises:
            ControllerError: says what is missing and how to get it.
        """

    def begin(self, static: str) -> None:  # noqa: B027 - most keep nothing
        """A trainer begins a run whose prompts have this static part."""

    @abstractmethod
    def rendered(self, prompt: Prompt, schema: Mapping[str, Any]) -> str:
        """What is sent: the text that the model reads, or the body of a request."""

    @abstractmethod
    def count_tokens(self, text: str) -> int:
        """Tokens of a text; an estimate from above where the tokenizer is not known."""

    def score(
        self, prompt: Prompt, fields: Mapping[str, tuple[str, ...]], choose: Choose
    ) -> Scored:
        """Compare the possible values of each field, in the order of the answer's skeleton.

        Args:
            fields: possible values by name, in order.
            choose: told a field and the log-probabilities of its values, says which value stands
                in the answer; the fields after it are scored with that value in place.
        """
        raise TypeError(f"{type(self).__name__} cannot score")

    @abstractmethod
    def generate(
        self, prompt: Prompt, schema: Mapping[str, Any], seed: int | None = None
    ) -> Generated:
        """Write an answer of the schema.

        Args:
            seed: draw the tokens by it; None = take the most likely ones.

        Raises:
            BackendError: there is no text.
        """

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """JSON values: ``backend``, ``model``, ``weights`` (a hash, or null), ``precision`` as it
        really is, and versions; no secret."""

    @abstractmethod
    def close(self) -> None:
        """Release what ``open`` took. Safe to call twice."""
