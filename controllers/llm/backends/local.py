"""Local models by transformers: scores by log-probability, or text bound to a schema."""

from __future__ import annotations

import json
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rudder.errors import ControllerError, SpecError

from ..prompt import Prompt
from .base import Backend, BackendError, Choose, Generated, Scored, Told, Usage
from .precision import Precision, arguments, check_precision, usable
from .weights import Weights, find_weights

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)

PREFIXES = 8
"""Static parts whose state is kept: one per trainer of a host, as a rule."""
MAX_NEW_TOKENS = 200
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
        # Set before the first import of torch reads it.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import torch
        from transformers import AutoTokenizer

        torch.set_num_threads(self._threads)
        self._weights = find_weights(self._source, progress)
        progress("loading the model", 0.2)
        self._tokenizer = AutoTokenizer.from_pretrained(self._weights.folder, local_files_only=True)
        if not self._tokenizer.chat_template:
            raise ControllerError(
                f"{self._source} has no chat template; use a model that was tuned to instructions"
            )
        self._load(usable(self._asked, self._fallback))
        self.context = min(getattr(self._model.config, "max_position_embeddings", 4096), 1 << 15)
        progress("loading the model", 1.0)

    def _load(self, precision: Precision) -> None:
        try:
            self._model = self._loaded(precision)
            self._used = precision
        except (ImportError, RuntimeError, ValueError, NotImplementedError) as error:
            if precision == self._fallback:
                raise ControllerError(f"{self._source} cannot be loaded: {error}") from error
            _log.warning(
                "%s cannot be loaded as %s (%s); using %s",
                self._source, precision, error, self._fallback,
            )  # fmt: skip
            self._model = self._loaded(self._fallback)
            self._used = self._fallback

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

    def count_tokens(self, text: str) -> int:
        return len(self._ids(text))

    def score(
        self, prompt: Prompt, fields: Mapping[str, tuple[str, ...]], choose: Choose
    ) -> Scored:
        import torch

        found: dict[str, dict[str, float]] = {}
        with torch.inference_mode():
            reading = _Reading(self, prompt)
            lead = "{"
            for name, values in fields.items():
                reading.read(self._ids(f'{lead}"{name}": "'))
                candidates = {value: self._ids(value) for value in values}
                found[name] = _compared(reading, candidates)
                chosen = choose(name, found[name])
                reading.read(candidates[chosen])
                lead = '", '
            usage = reading.usage()
            reading.end()
        return Scored(found, usage)

    def generate(
        self, prompt: Prompt, schema: Mapping[str, Any], seed: int | None = None
    ) -> Generated:
        import torch

        draw = None if seed is None else torch.Generator().manual_seed(seed)
        with torch.inference_mode():
            reading = _Reading(self, prompt)
            written = reading.write(self._grammar(schema), MAX_NEW_TOKENS, draw)
            usage = reading.usage()
            reading.end()
        ends = self._tokenizer.eos_token_id
        if written and written[-1] == ends:
            written = written[:-1]
        text = self._tokenizer.decode(written, skip_special_tokens=True)
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
                return before, after
        raise ControllerError(f"the chat template of {self._source} does not take a user's turn")

    def _grammar(self, schema: Mapping[str, Any]) -> Any:
        """The compiled schema, kept."""
        # Set before xgrammar is imported: else it compiles an extension for many seconds.
        os.environ.setdefault("TVM_FFI_DISABLE_TORCH_C_DLPACK", "1")
        import xgrammar

        key = json.dumps(schema)  # in the order of its keys, in which they are written
        if key not in self._grammars:
            info = xgrammar.TokenizerInfo.from_huggingface(
                self._tokenizer, vocab_size=self._model.config.vocab_size
            )
            compiler = xgrammar.GrammarCompiler(info)
            self._grammars[key] = compiler.compile_json_schema(key, any_whitespace=False)
        return self._grammars[key]


class _Reading:
    """One question, read on from the kept state of its static part.

    The state belongs to the backend: :meth:`end` cuts off what this question added.
    """

    def __init__(self, backend: LocalBackend, prompt: Prompt) -> None:
        from transformers import DynamicCache

        self._backend = backend
        before, after = backend._rendered(prompt.static)
        rest = backend._ids(prompt.dynamic + after)
        key = before
        known = backend._prefixes.get(key) if backend._reuse else None
        if known is None:
            ids, cache = backend._ids(before), DynamicCache()
            self.reused = 0
        else:
            ids, cache = known
            self.reused = len(ids)
        self._cache: Any = cache
        self._hidden: Any = None
        self._prefix = len(ids)
        self.length = self.reused
        if self._prefix + len(rest) + 64 > backend.context:
            raise BackendError(
                "too long", f"{self._prefix + len(rest)} tokens, the model takes {backend.context}"
            )
        if known is None:
            self.read(ids)
            if backend._reuse:
                backend._prefixes[key] = (ids, cache)
                if len(backend._prefixes) > PREFIXES:
                    backend._prefixes.popitem(last=False)
        else:
            backend._prefixes.move_to_end(key)
        self.read(rest)
        self._prompt = self.length

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
        """float32 logits of some tokens (None = all) as the next one."""
        model = self._backend._model
        head = model.get_output_embeddings()
        rows = head.weight if ids is None else head.weight[list(ids)]
        # In float32: bf16 logits are too coarse to compare.
        values: torch.Tensor = rows.float() @ self._hidden.float()
        scale = getattr(model.config, "logits_scaling", None)
        if scale:
            values = values / scale
        cap = getattr(model.config, "final_logit_softcapping", None)
        if cap:
            values = cap * (values / cap).tanh()
        return values

    def back_to(self, length: int, hidden: torch.Tensor) -> None:
        """Forget what was read since."""
        self._cache.crop(length)
        self.length, self._hidden = length, hidden

    @property
    def hidden(self) -> torch.Tensor:
        return self._hidden

    def write(self, grammar: Any, limit: int, draw: torch.Generator | None) -> list[int]:
        """Tokens that the grammar allows, up to its end: the most likely ones, or drawn."""
        import torch
        import xgrammar

        matcher = xgrammar.GrammarMatcher(grammar)
        width = self._backend._model.config.vocab_size
        allowed = xgrammar.allocate_token_bitmask(1, width)
        written: list[int] = []
        while len(written) < limit:
            matcher.fill_next_token_bitmask(allowed)
            logits = self.logits()[None, :width]
            xgrammar.apply_token_bitmask_inplace(logits, allowed.to(logits.device))
            if draw is None:
                token = int(torch.argmax(logits))
            else:
                shares = torch.softmax(logits[0], dim=0).cpu()
                token = int(torch.multinomial(shares, 1, generator=draw))
            if not matcher.accept_token(token) or matcher.is_terminated():
                break
            written.append(token)
            self.read([token])
        return written

    def usage(self) -> Usage:
        return Usage(self._prompt, self.reused, self.length - self._prompt)

    def end(self) -> None:
        """Leave the state as it was after the static part."""
        self._cache.crop(self._prefix)


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
