"""Local models by transformers: scores by log-probability, or text bound to a schema."""

from __future__ import annotations

import json
import logging
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rudder.errors import ControllerError, SpecError

from ..prompt import Prompt
from .base import Backend, BackendError, Choose, Generated, Scored, Told, Usage
from .precision import Precision, arguments, check_precision, usable
from .reading import Kept, Reading, vocabulary
from .weights import Weights, find_weights

_log = logging.getLogger(__name__)

KEPT = 32
"""Trainers whose last prompt is kept with the model's state after it."""
MAX_NEW_TOKENS = 200
"""Of a written answer; then it is brought to its end."""
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
        reuse: keep the state after a trainer's last prompt, and read the next one from where it
            differs; without, every prompt is read whole.

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
        self._kept: OrderedDict[str, Kept] = OrderedDict()

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
        _leave_out_other_libraries()
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
        its output matrix times that state (a bias, a factor) has to be known to :class:`Reading`.
        """
        import torch

        with torch.inference_mode(), self._reading(Prompt("Check.", "Check.")) as reading:
            ids = reading.ids
            own = self._model(torch.tensor([ids], device=self._model.device)).logits[0, -1].float()
            ours = reading.logits()
            apart = float((own - ours).abs().max() / own.abs().max().clamp(min=1e-3))
        self._kept.clear()
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
                found[name] = reading.compare(candidates)
                chosen = choose(name, found[name])
                lead = f'{chosen}", '
            usage = reading.usage()
        return Scored(found, usage)

    def begin(self, static: str) -> None:
        # Answers do not depend on the run before: not by a rounding either.
        kept = self._kept.get(self._rendered(static)[0])
        if kept is not None:
            kept.cut(kept.static)

    @contextmanager
    def _reading(self, prompt: Prompt) -> Iterator[Reading]:
        """One question, read on from where it differs from the one before."""
        if self._model is None:
            raise ControllerError(f"{self._source} is not loaded")
        before, after = self._rendered(prompt.static)
        static, rest = self._ids(before), self._ids(prompt.dynamic + after)
        if len(static) + len(rest) + 64 > self.context:
            raise BackendError(
                "too long", f"{len(static) + len(rest)} tokens, the model takes {self.context}"
            )
        # Taken out meanwhile: what is broken off may leave anything behind.
        reading = Reading(self._model, static, rest, self._kept.pop(before, None))
        yield reading
        if self._reuse:
            self._kept[before] = reading.end()
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def generate(
        self, prompt: Prompt, schema: Mapping[str, Any], seed: int | None = None
    ) -> Generated:
        import torch

        draw = None if seed is None else torch.Generator().manual_seed(seed)
        with torch.inference_mode(), self._reading(prompt) as reading:
            written = reading.write(self._grammar(schema), MAX_NEW_TOKENS, self._to_close(), draw)
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
        self._kept.clear()
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

    def _grammar(self, schema: Mapping[str, Any]) -> Any:
        """The compiled schema, kept."""
        # Set before xgrammar is imported: else it compiles an extension for many seconds.
        os.environ.setdefault("TVM_FFI_DISABLE_TORCH_C_DLPACK", "1")
        import xgrammar

        key = json.dumps(_closable(schema))  # in the order of its keys, which is that of writing
        if key not in self._grammars:
            info = xgrammar.TokenizerInfo.from_huggingface(
                self._tokenizer, vocab_size=vocabulary(self._model)
            )
            compiler = xgrammar.GrammarCompiler(info)
            self._grammars[key] = compiler.compile_json_schema(key, any_whitespace=False)
        return self._grammars[key]


def _leave_out_other_libraries() -> None:
    """Keep transformers from importing scikit-learn, SciPy and pandas: a sixth of the start.

    It does so where they are installed, for losses and a way of decoding that are not used here.
    """
    from transformers.utils import import_utils

    import_utils._sklearn_available = False
    import_utils._scipy_available = False


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
