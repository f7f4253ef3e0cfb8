"""The agent: a language model that is shown the metrics and its own history, and decides."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from rudder import Capabilities, Controller, Decision, Observation, Task
from rudder.errors import ControllerError, SpecError
from rudder.model.calibration import Calibration

from . import words
from .answers import DECISIONS, EFFECTS, InvalidAnswer, answer_schema, parse_answer
from .backends.base import Backend, Scored, Usage, estimated_tokens
from .backends.precision import check_precision
from .incontext import ORDERS, Experience, examples_of
from .prompt import Prompt, PromptBuilder, Template

if TYPE_CHECKING:
    from rudder.cluster.doctor import Check

Mode = Literal["score", "generate"]
Choice = Literal["greedy", "sample"]

_FIELDS = {"decision": DECISIONS, "expected_hits": EFFECTS, "expected_communication": EFFECTS}
_ANSWER_TOKENS = 320
"""Kept free for the answer and the skeleton around it."""


class Agent(Controller):
    """Asks a language model.

    Args:
        model: of local backends where the weights come from, of servers the model's name there.
        backend: ``transformers`` or ``openai``.
        mode: ``score``: decision and effects are compared by their log-probabilities; ``generate``:
            the model writes, bound to the schema. "" = score where the backend can.
        choice: ``greedy``: the likelier decision; ``sample``: drawn by p(replace), with the run's
            seed.
        threshold: p(replace) from which it replaces; null = the likelier decision. Fitted ones
            come by ``calibration``.
        calibration: directory of a calibration (``rudder calibrate``), or ""; with one the agent
            is no longer zero-shot.
        template: prompt template, by name or as a .toml file.
        numbers: ``figures``, ``words`` or ``both``.
        shots: examples from its own decisions whose outcome is known; 0 = none.
        order: of the examples.
        without: parts of the prompt that are left out, separated by commas.
        budget: tokens of a prompt at most; 0 = what the model takes.
        memory: run directory whose decisions it remembers from the start, or "".
        precision, fallback, threads, reuse: of local backends.
        url, key_env, timeout_s, retries, context: of servers.
        billions: weights of the model, for what ``rudder doctor --model`` estimates; 0 = unknown.

    Raises:
        SpecError: a value out of range.
    """

    tags: Capabilities = Capabilities(
        llm=True, own_process=True, shared=True, deadline_s=60.0, paths=("calibration", "memory")
    )

    def __init__(
        self,
        model: str,
        backend: str = "transformers",
        mode: str = "",
        choice: str = "greedy",
        threshold: float | None = None,
        calibration: str = "",
        template: str = "steer-v2",
        numbers: str = "words",
        shots: int = 4,
        order: str = "balanced",
        without: str = "",
        budget: int = 0,
        memory: str = "",
        precision: str = "bf16",
        fallback: str = "bf16",
        threads: int = 1,
        reuse: bool = True,
        url: str = "http://127.0.0.1:11434/v1",
        key_env: str = "",
        timeout_s: float = 30.0,
        retries: int = 2,
        context: int = 4096,
        billions: float = 0.0,
    ) -> None:
        _one_of("backend", backend, ("transformers", "openai"))
        _one_of("mode", mode, ("", *get_args(Mode)))
        _one_of("choice", choice, get_args(Choice))
        _one_of("numbers", numbers, words.STYLES)
        _one_of("order", order, ORDERS)
        if threshold is not None and not 0 <= threshold <= 1:
            raise SpecError(f"threshold must lie in 0..1 or be null, found {threshold!r}")
        if threshold is not None and calibration:
            raise SpecError("threshold and calibration exclude each other")
        if choice == "sample" and (threshold is not None or calibration):
            raise SpecError("a threshold decides by itself; with choice=sample it would not")
        if shots < 0 or budget < 0 or billions < 0:
            raise SpecError(
                "shots, budget and billions count from 0, found "
                f"{shots!r}, {budget!r} and {billions!r}"
            )
        if memory and not shots:
            raise SpecError("what memory= remembers is told as examples; say how many: shots=4")
        if backend == "openai" and mode == "score":
            raise SpecError("a server writes answers; mode=score needs backend=transformers")
        self.mode: str = mode or ("score" if backend == "transformers" else "generate")
        if self.mode == "generate" and (threshold is not None or calibration):
            raise SpecError("a threshold needs p(replace), which only mode=score gives")
        self.model, self.backend, self.choice = model, backend, choice
        self.threshold, self.calibration = threshold, calibration
        self.template, self.numbers, self.shots, self.order = template, numbers, shots, order
        self.without = tuple(part.strip() for part in without.split(",") if part.strip())
        self.budget, self.memory = budget, memory
        self.billions, self.url = billions, url
        self.precision = check_precision("precision", precision)
        self.fallback = check_precision("fallback", fallback)
        self._local = {
            "precision": precision, "fallback": fallback, "threads": threads, "reuse": reuse,
        }  # fmt: skip
        self._remote = {
            "url": url, "key_env": key_env, "timeout_s": timeout_s, "retries": retries,
            "context": context,
        }  # fmt: skip
        self.tags = dataclasses.replace(
            Agent.tags,
            stochastic=choice == "sample",
            repeatable=backend == "transformers",
            deadline_s=max(Agent.tags.deadline_s, timeout_s),
        )
        self._make_backend()  # whatever is wrong with the parameters is said here
        self._opened: Backend | None = None
        self._own: Backend | None = None
        self._builder: PromptBuilder | None = None
        self._experience = Experience(0)
        self._limit: float | None = threshold
        self._seed = ""
        self._told_facts = False

    def _make_backend(self) -> Backend:
        if self.backend == "openai":
            from .backends.remote import RemoteBackend

            return RemoteBackend(self.model, **self._remote)  # type: ignore[arg-type]
        from .backends.local import LocalBackend

        return LocalBackend(self.model, **self._local)  # type: ignore[arg-type]

    def _load(self, progress: Callable[[str, float], None]) -> Backend:
        backend = self._make_backend()
        backend.open(progress)
        return backend

    def _adopt(self, loaded: Backend) -> None:
        self._opened = loaded

    def _reset(self, task: Task) -> None:
        if self._opened is None:
            self._opened = self._own = self._load(lambda phase, share: None)
        backend = self._opened
        self._limit = self.threshold
        if self.calibration:
            found = Calibration.read(Path(self.calibration))
            self._limit = found.threshold_for(self.identity(backend))
        builder = self._begin(task, backend.count_tokens, backend.context - _ANSWER_TOKENS)
        backend.begin(builder.static)

    def _begin(self, task: Task, count_tokens: Callable[[str], int], room: int) -> PromptBuilder:
        """Forget the run before; write the static part of this one's prompts."""
        self._builder = PromptBuilder(
            Template.load(self.template),
            task.facts,
            style=self.numbers,  # type: ignore[arg-type]
            without=self.without,
            count_tokens=count_tokens,
            budget=min(self.budget or room, room),
        )
        shots = 0 if "shots" in self.without else self.shots
        self._experience = Experience(shots, self.order)  # type: ignore[arg-type]
        if self.memory:
            self._experience.remember(examples_of(Path(self.memory).expanduser(), task.rank))
        self._seed = f"{task.seed}:{task.rank}"
        self._told_facts = False
        return self._builder

    def _preview(self, task: Task, observations: Sequence[Observation]) -> dict[str, str]:
        backend, missing = self._make_backend(), ""
        try:
            backend.prepare(lambda phase, share: None)
        except (ControllerError, ImportError) as error:
            missing = str(error)
        count_tokens = estimated_tokens if missing else backend.count_tokens
        self._begin(task, count_tokens, backend.context - _ANSWER_TOKENS)
        prompts = [self.prompt(observation) for observation in observations]
        if missing:
            return {"static": prompts[-1].static, "dynamic": prompts[-1].dynamic, "note": missing}
        found = {"sent": backend.rendered(prompts[-1], answer_schema())}
        if self.mode == "score":
            fields = (f'"{name}": "<{"|".join(values)}>"' for name, values in _FIELDS.items())
            found["scored"] = "{" + ", ".join(fields)
        return found

    def _reads(self) -> list[Path]:
        return [Template.file(self.template), Path(words.__file__)]

    def _needs(self) -> Iterator[Check]:
        from .holding import checks

        yield from checks(self, self._make_backend())

    def identity(self, backend: Backend) -> dict[str, Any]:
        """What shapes p(replace): a calibration holds for this alone."""
        facts = backend.facts()
        return {
            "model": facts["model"],
            "weights": facts["weights"],
            "precision": facts["precision"],
            "template": Template.load(self.template).digest,
            "words": words.DIGEST,
            "numbers": self.numbers,
            "shots": self.shots,
            "order": self.order,
            "without": sorted(self.without),
            "budget": self.budget,
        }

    def prompt(self, observation: Observation) -> Prompt:
        """What would be sent for an observation; notes its situation as shown."""
        if self._builder is None:
            raise ControllerError("asked before it was reset")
        self._experience.see(observation)
        return self._builder.build(observation, self._experience.chosen(observation.window))

    def _decide(self, observation: Observation) -> Decision:
        backend = self._opened
        if backend is None:
            raise ControllerError("asked before it was reset")
        prompt = self.prompt(observation)
        draw = random.Random(f"{self._seed}:{observation.minibatch}")
        if self.mode == "score":
            return self._scored(backend, prompt, draw)
        return self._generated(backend, prompt, draw)

    def _close(self) -> None:
        own, self._own, self._opened = self._own, None, None
        if own is not None:
            own.close()

    def _scored(self, backend: Backend, prompt: Prompt, draw: random.Random) -> Decision:
        answer: dict[str, str] = {}

        def choose(field: str, logprobs: Mapping[str, float]) -> str:
            if field == "decision":
                answer[field] = self._chosen(math.exp(logprobs["replace"]), draw)
            else:
                answer[field] = max(logprobs, key=logprobs.__getitem__)
            return answer[field]

        scored: Scored = backend.score(prompt, _FIELDS, choose)
        p_replace = math.exp(scored.logprobs["decision"]["replace"])
        scores = {field: dict(values) for field, values in scored.logprobs.items()}
        return Decision(
            replace=answer["decision"] == "replace",
            p_replace=min(max(p_replace, 0.0), 1.0),
            expected_hits=answer["expected_hits"],  # type: ignore[arg-type]
            expected_communication=answer["expected_communication"],  # type: ignore[arg-type]
            explanation=f"p(replace) {p_replace:.3f}",
            details=self._transcript(backend, prompt, scored.usage, scores=scores),
        )

    def _chosen(self, p_replace: float, draw: random.Random) -> str:
        if self.choice == "sample":
            return "replace" if draw.random() < p_replace else "keep"
        limit = 0.5 if self._limit is None else self._limit
        return "replace" if p_replace >= limit else "keep"

    def _generated(self, backend: Backend, prompt: Prompt, draw: random.Random) -> Decision:
        seed = draw.getrandbits(31) if self.choice == "sample" else None
        written = backend.generate(prompt, answer_schema(), seed)
        details = self._transcript(
            backend, prompt, written.usage, text=written.text[:2_000], **written.notes
        )
        try:
            answer = parse_answer(written.text)
        except InvalidAnswer as error:
            return Decision(
                replace=False, explanation=str(error), outcome="invalid", details=details
            )
        return Decision(
            replace=answer.decision == "replace",
            expected_hits=answer.expected_hits,
            expected_communication=answer.expected_communication,
            explanation=answer.explanation,
            details=details,
        )

    def _transcript(
        self, backend: Backend, prompt: Prompt, usage: Usage, **answer: Any
    ) -> dict[str, Any]:
        """What the journal keeps of a question; what does not change, with the first one only."""
        facts = backend.facts()
        found = {
            "prompt": prompt.digest,
            "dynamic": prompt.dynamic,
            "weights": facts["weights"],
            "prompt_tokens": usage.prompt_tokens,
            "reused_tokens": usage.reused_tokens,
            "answer_tokens": usage.answer_tokens,
            **answer,
        }
        if not self._told_facts:
            self._told_facts = True
            found |= {
                "static": prompt.static,
                "template": self.template,
                "identity": self.identity(backend),
                "model": facts,
                "mode": self.mode,
                "zero_shot": not (self.calibration or self.threshold is not None or self.memory),
            }
        return found


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        told = ", ".join(one or '""' for one in known)
        raise SpecError(f"{name} must be one of {told}, found {value!r}")
