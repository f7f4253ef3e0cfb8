"""Local models by transformers: scores by log-probability, or text bound to a schema."""

from __future__ import annotations

import json
import logging
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rudder.errors import ControllerError, SpecError

from ..prompt import Prompt
from .base import Backend, BackendError, Choose, Generated, Scored, Told, Usage
from .precision import Precision, arguments, check_precision, usable
from .weights import Weights, find_weights

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)

PREFIXES = 32
"""Static parts whose state is kept: one per trainer that is served."""
MAX_NEW_TOKENS = 200
"""Of a written answer; then it is brought to its end."""
_TO_END = 16
"""Tokens that bringing it to its end may take: closing the text and the object."""
_THINK = ("<think>", "</think>")
_MARK = "\u2063dynamic\u2063"
"""Stands for the dynamic part while the chat template is taken apart; no text holds it."""


class LocalBackend(Backend):
    """A causal language model in this process, on a GPU if there is one.

    Args:
        model: where its weights come from (:mod:`.weights`).
        precision: ``float32``, ``bf16``, ``int8`` or ``nf4``.
        fallback: precision that is used where ``precision`` cannot run.
        threads: of the CPU that it may take from training.
        reuse: keep the state of static parts; without, every question is read whole.

    Raises:
        SpecError: a value out of range.
    """

    scores = True

    def __init__(
        self,
        model: str,
        precision: str = "bf16",
        fallback: str = "bf16",
        threads: int = 1,
        reuse: bool = True,
    ) -> None:
        if threads < 1:
            raise SpecError(f"threads must be a count from 1, found {threads!r}")
        self._source = model
        self._asked = check_precision("precision", precision)
        self._fallback = check_precision("fallback", fallback)
        self._threads, self._reuse = threads, reuse
        self._used: Precision = self._asked
        self._weights: Weights | None = None
        self._model: Any = None
        self._tokenizer: Any = None
        self._grammars: dict[str, Any] = {}
        self._prefixes: OrderedDict[str, tuple[list[int], Any]] = OrderedDict()

    def open(self, progress: Told) -> None:
        import torch

        torch.set_num_threads(self._threads)
        self.prepare(progress)
        progress("loading the model", 0.2)
        self._load(usable(self._asked, self._fallback))
        positions = getattr(self._model.config.get_text_config(), "max_position_embeddings", 4096)
        self.context = min(positions, 1 << 15)
        self._check_head()
        progress("loading the model", 1.0)

    def prepare(self, progress: Told) -> None:
        # Set before the tokenizer's threads start.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        from transformers import AutoTokenizer

        self._weights = find_weights(self._source, progress)
        self._tokenizer = AutoTokenizer.from_pretrained(self._weights.folder, local_files_only=True)
        if not self._tokenizer.chat_template:
            raise ControllerError(
                f"{self._source} has no chat template; use a model that was tuned to instructions"
            )

    def _load(self, asked: Precision) -> None:
        for precision in dict.fromkeys((asked, self._fallback)):
            try:
                self._model, self._used = self._loaded(precision), precision
                return
            except (ImportError, RuntimeError, ValueError, NotImplementedError, OSError) as error:
                if precision == self._fallback:
                    raise ControllerError(
                        f"{self._source} cannot be loaded as {precision}: {error}"
                    ) from error
                _log.warning(
                    "%s cannot be loaded as %s (%s); using %s",
                    self._source, precision, error, self._fallback,
                )  # fmt: skip

    def _loaded(self, precision: Precision) -> Any:
        import torch
        from transformers import AutoModelForCausalLM

        if self._weights is None:
            raise ControllerError("the weights were not looked for")
        device: dict[str, Any] = {"device_map": {"": 0}} if torch.cuda.is_available() else {}
        model: Any = AutoModelForCausalLM.from_pretrained(
            self._weights.folder,
            local_files_only=True,
            use_safetensors=True,
            low_cpu_mem_usage=True,
            **device,
            **arguments(precision),
        )
        return model.eval()

    def _check_head(self) -> None:
        """Refuse a model whose scores would come out wrong.

        Scores are made from the last hidden state, in float32. A family whose logits are more than
        its output matrix times that state (a bias, a factor) has to be known to :class:`_Reading`.
        """
        import torch

        with torch.inference_mode(), self._reading(Prompt("Check.", "Check.")) as reading:
            ids = reading.ids
            own = self._model(torch.tensor([ids], device=self._model.device)).logits[0, -1].float()
            ours = reading.logits()
            apart = float((own - ours).abs().max() / own.abs().max().clamp(min=1e-3))
        self._prefixes.clear()
        if apart > 0.1:  # bf16 and the order of reading come to about 0.01
            raise ControllerError(
                f"{self._source}: this kind of model ({self._model.config.model_type}) cannot be "
                f"asked here (its logits differ by {apart:.0%}); serve it, and use backend=openai"
            )

    def rendered(self, prompt: Prompt, schema: Mapping[str, Any]) -> str:
        before, after = self._rendered(prompt.static)
        return before + prompt.dynamic + after

    def count_tokens(self, text: str) -> int:
        return len(self._ids(text))

    def score(
        self, prompt: Prompt, fields: Mapping[str, tuple[str, ...]], choose: Choose
    ) -> Scored:
        import torch

        found: dict[str, dict[str, float]] = {}
        with torch.inference_mode(), self._reading(prompt) as reading:
            lead = "{"
            for name, values in fields.items():
                reading.read(self._ids(f'{lead}"{name}": "'))
                candidates = {value: self._ids(value) for value in values}
                found[name] = _compared(reading, candidates)
                chosen = choose(name, found[name])
                lead = f'{chosen}", '
            usage = reading.usage()
        return Scored(found, usage)

    @contextmanager
    def _reading(self, prompt: Prompt) -> Iterator[_Reading]:
        """One question, read on from the kept state of its static part."""
        if self._model is None:
            raise ControllerError(f"{self._source} is not loaded")
        reading = _Reading(self, prompt)
        try:
            reading.begin()
            yield reading
            reading.end()
        except BaseException:
            reading.forget()  # what was broken off may have left anything behind
            raise

    def generate(
        self, prompt: Prompt, schema: Mapping[str, Any], seed: int | None = None
    ) -> Generated:
        import torch

        draw = None if seed is None else torch.Generator().manual_seed(seed)
        with torch.inference_mode(), self._reading(prompt) as reading:
            written = reading.write(self._grammar(schema), MAX_NEW_TOKENS, draw)
            usage = reading.usage()
        text = self._tokenizer.decode(
            written, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return Generated(text, Usage(usage.prompt_tokens, usage.reused_tokens, len(written)))

    def facts(self) -> dict[str, Any]:
        import torch
        import transformers

        weights = self._weights
        return {
            "backend": "transformers",
            "model": self._source,
            "weights": None if weights is None else weights.digest,
            "precision": self._used,
            "precision_asked": self._asked,
            "threads": self._threads,
            "device": "cuda" if torch.cuda.is_available() else "cpu",
            "transformers": transformers.__version__,
            "torch": torch.__version__,
        }

    def close(self) -> None:
        self._prefixes.clear()
        self._model = None

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _rendered(self, static: str) -> tuple[str, str]:
        """What stands before and after the dynamic part in the model's own chat template."""
        from jinja2 import TemplateError

        turns = [{"role": "system", "content": static}, {"role": "user", "content": _MARK}]
        merged = [{"role": "user", "content": f"{static}\n\n{_MARK}"}]
        for messages in (turns, merged):  # some models know no system's turn
            try:
                text: str = self._tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True
                )
            except TemplateError:
                continue
            before, mark, after = text.partition(_MARK)
            if mark and static.strip() in before:
                if after.rstrip().endswith(_THINK[0]):
                    # A template that makes its model think aloud; here it has to answer at once.
                    after = f"{after.rstrip()}\n\n{_THINK[1]}\n\n"
                return before, after
        raise ControllerError(f"the chat template of {self._source} does not take a user's turn")

    def _to_close(self) -> list[int]:
        """Tokens that end a text, or the object around it."""
        return [ids[0] for text in ('"}', '"', "}") if len(ids := self._ids(text)) == 1]

    @property
    def _vocabulary(self) -> int:
        """Tokens that the model has logits for; a tokenizer may know fewer."""
        return int(self._model.get_output_embeddings().weight.shape[0])

    def _grammar(self, schema: Mapping[str, Any]) -> Any:
        """The compiled schema, kept."""
        # Set before xgrammar is imported: else it compiles an extension for many seconds.
        os.environ.setdefault("TVM_FFI_DISABLE_TORCH_C_DLPACK", "1")
        import xgrammar

        key = json.dumps(_closable(schema))  # in the order of its keys, which is that of writing
        if key not in self._grammars:
            info = xgrammar.TokenizerInfo.from_huggingface(
                self._tokenizer, vocab_size=self._vocabulary
            )
            compiler = xgrammar.GrammarCompiler(info)
            self._grammars[key] = compiler.compile_json_schema(key, any_whitespace=False)
        return self._grammars[key]


class _Reading:
    """One question, read on from the kept state of its static part.

    The state belongs to the backend: :meth:`end` cuts off what this question added.
    """

    def __init__(self, backend: LocalBackend, prompt: Prompt) -> None:
        self._backend = backend
        self._key, after = backend._rendered(prompt.static)
        self._rest = backend._ids(prompt.dynamic + after)
        known = backend._prefixes.get(self._key)
        self.reused = 0 if known is None else len(known[0])
        self._static = backend._ids(self._key) if known is None else known[0]
        self._cache: Any = None if known is None else known[1]
        self._hidden: Any = None
        self.length = self.reused
        self.ids: list[int] = [*self._static, *self._rest]
        if len(self.ids) + 64 > backend.context:
            raise BackendError(
                "too long", f"{len(self.ids)} tokens, the model takes {backend.context}"
            )

    def begin(self) -> None:
        """Read the prompt, as far as it is not known."""
        from transformers import DynamicCache

        backend = self._backend
        if self._cache is None:
            self._cache = DynamicCache()
            self.read(self._static)
            if backend._reuse:
                backend._prefixes[self._key] = (self._static, self._cache)
                if len(backend._prefixes) > PREFIXES:
                    backend._prefixes.popitem(last=False)
        else:
            backend._prefixes.move_to_end(self._key)
        self.read(self._rest)

    def read(self, ids: Sequence[int]) -> None:
        """Append tokens."""
        import torch

        model = self._backend._model
        tokens = torch.tensor([list(ids)], device=model.device)
        # The body without the head: logits of a whole vocabulary for every token are not needed.
        body = model.get_decoder() if hasattr(model, "get_decoder") else model.model
        found = body(input_ids=tokens, past_key_values=self._cache, use_cache=True)
        self._hidden = found.last_hidden_state[0, -1]
        self.length += len(ids)

    def logits(self, ids: Sequence[int] | None = None) -> torch.Tensor:
        """float32 logits of some tokens as the next one; None = of all, as exact as the model."""
        model = self._backend._model
        head, config = model.get_output_embeddings(), model.config.get_text_config()
        values: torch.Tensor
        if ids is None:
            values = head(self._hidden).float()
        else:  # in float32: bf16 logits are too coarse to compare
            values = head.weight[list(ids)].float() @ self._hidden.float()
        scale = getattr(config, "logits_scaling", None)
        if scale:
            values = values / scale
        cap = getattr(config, "final_logit_softcapping", None)
        if cap:
            values = cap * (values / cap).tanh()
        return values

    def back_to(self, length: int, hidden: torch.Tensor) -> None:
        """Forget what was read since."""
        self._cache.crop(length)
        self.length, self._hidden = length, hidden

    @property
    def hidden(self) -> torch.Tensor:
        hidden: torch.Tensor = self._hidden
        return hidden

    def write(self, grammar: Any, limit: int, draw: torch.Generator | None) -> list[int]:
        """Tokens that the grammar allows, up to its end: the most likely ones, or drawn.

        After ``limit`` tokens those that bring the answer to its end are taken, where allowed.
        """
        import torch
        import xgrammar

        matcher = xgrammar.GrammarMatcher(grammar)
        width = self._backend._vocabulary
        allowed = xgrammar.allocate_token_bitmask(1, width)
        closing = torch.tensor(self._backend._to_close())
        written: list[int] = []
        while len(written) < limit + _TO_END:
            matcher.fill_next_token_bitmask(allowed)
            logits = self.logits()[None, :].cpu()
            xgrammar.apply_token_bitmask_inplace(logits, allowed)
            ends = logits[0, closing]
            if len(written) >= limit and bool(torch.isfinite(ends).any()):
                token = int(closing[torch.argmax(ends)])
            elif draw is None:
                token = int(torch.argmax(logits))
            else:
                token = int(torch.multinomial(torch.softmax(logits[0], 0), 1, generator=draw))
            if not matcher.accept_token(token) or matcher.is_terminated():
                break
            written.append(token)
            if matcher.is_completed():
                break
            self.read([token])
        return written

    def usage(self) -> Usage:
        return Usage(len(self.ids), self.reused, self.length - len(self.ids))

    def end(self) -> None:
        """Leave the state as it was after the static part."""
        self._cache.crop(len(self._static))

    def forget(self) -> None:
        """Keep nothing of the static part either."""
        self._backend._prefixes.pop(self._key, None)


def _closable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with its free texts narrowed to what can be ended after every token.

    That is printable ASCII without quote and backslash: no escape and no character is cut in two.
    """

    def narrowed(part: Mapping[str, Any]) -> Mapping[str, Any]:
        if part.get("type") != "string" or "enum" in part:
            return part
        most = part.get("maxLength", "")
        return {"type": "string", "pattern": rf"^[ !#-\[\]-~]{{0,{most}}}$"}

    properties = {name: narrowed(part) for name, part in schema["properties"].items()}
    return {**schema, "properties": properties}


def _compared(reading: _Reading, candidates: Mapping[str, list[int]]) -> dict[str, float]:
    """Log-probability of each candidate if one of them has to be written.

    Where several begin with the same token, that token is read and the rest compared after it. No
    candidate is the beginning of another.
    """
    import torch

    by_first: dict[int, list[str]] = {}
    for value, ids in candidates.items():
        by_first.setdefault(ids[0], []).append(value)
    firsts = list(by_first)
    shares = torch.log_softmax(reading.logits(firsts), dim=0).tolist()
    found: dict[str, float] = {}
    for first, share in zip(firsts, shares, strict=True):
        values = by_first[first]
        if len(values) == 1:
            found[values[0]] = share
            continue
        length, hidden = reading.length, reading.hidden
        reading.read([first])
        rest = {value: candidates[value][1:] for value in values}
        found |= {value: share + more for value, more in _compared(reading, rest).items()}
        reading.back_to(length, hidden)
    return {value: found[value] for value in candidates}
