"""One question to a model: read on from what is known of it already, compared or written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .base import Usage

if TYPE_CHECKING:
    import torch

TO_END = 16
"""Tokens that bringing a written answer to its end may take: closing the text and the object."""


@dataclass
class Kept:
    """What a model has read of a trainer's prompts, and its state after it.

    Attributes:
        static: tokens of the static part, with which ``ids`` begin.
        ids: tokens that were read.
        cache: keys and values of these.
    """

    static: int
    ids: list[int]
    cache: Any

    def cut(self, length: int) -> None:
        """Forget what was read behind the first ``length`` tokens."""
        self.cache.crop(length)
        del self.ids[length:]

    def common(self, ids: Sequence[int]) -> int:
        """Tokens with which ``ids`` begin as this does."""
        pairs = zip(self.ids, ids, strict=False)
        return next((n for n, (one, other) in enumerate(pairs) if one != other), len(self.ids))


class Reading:
    """A prompt that a model reads, and what is appended to it.

    Tokens are read together as late as possible: a model takes hardly longer for ten than for one.

    Args:
        model: a causal language model of transformers.
        static, rest: tokens of the prompt. Where the static part has to be read it is read by
            itself, so that its state is the same whatever follows.
        kept: of an earlier prompt; as far as this one begins alike nothing is read again.
    """

    def __init__(
        self, model: Any, static: Sequence[int], rest: Sequence[int], kept: Kept | None
    ) -> None:
        from transformers import DynamicCache

        self.model = model
        self.ids = [*static, *rest]
        self._kept = kept or Kept(len(static), [], DynamicCache())
        # At least one token has to be read, for the state after it.
        self.reused = min(self._kept.common(self.ids), len(self.ids) - 1)
        self._kept.cut(self.reused)
        self._ahead: list[int] = []
        self._hidden: Any = None
        if self.reused < len(static):
            self.read(static[self.reused :])
            self._catch_up()
        self.read(self.ids[len(self._kept.ids) :])

    @property
    def length(self) -> int:
        """Tokens of the prompt and of what was appended."""
        return len(self._kept.ids) + len(self._ahead)

    def read(self, ids: Sequence[int]) -> None:
        """Append tokens."""
        self._ahead += ids

    @property
    def hidden(self) -> torch.Tensor:
        """Last hidden state, after all that was appended."""
        self._catch_up()
        hidden: torch.Tensor = self._hidden
        return hidden

    def _catch_up(self) -> None:
        import torch

        if not self._ahead:
            return
        kept, ids = self._kept, self._ahead
        if len(ids) == 1 and kept.ids and _one_is_slow(self.model):
            ids = [kept.ids[-1], *ids]
            kept.cut(len(kept.ids) - 1)
        tokens = torch.tensor([ids], device=self.model.device)
        # The body without the head: logits of a whole vocabulary for every token are not needed.
        body = self.model.get_decoder() if hasattr(self.model, "get_decoder") else self.model.model
        found = body(input_ids=tokens, past_key_values=kept.cache, use_cache=True)
        self._hidden = found.last_hidden_state[0, -1]
        kept.ids += ids
        self._ahead = []

    def logits(self, ids: Sequence[int] | None = None) -> torch.Tensor:
        """float32 logits of some tokens as the next one; None = of all, as exact as the model."""
        head, config = self.model.get_output_embeddings(), self.model.config.get_text_config()
        values: torch.Tensor
        if ids is None:
            values = head(self.hidden).float()
        else:  # in float32: bf16 logits are too coarse to compare
            values = head.weight[list(ids)].float() @ self.hidden.float()
        scale = getattr(config, "logits_scaling", None)
        if scale:
            values = values / scale
        cap = getattr(config, "final_logit_softcapping", None)
        if cap:
            values = cap * (values / cap).tanh()
        return values

    def compare(self, candidates: Mapping[str, Sequence[int]]) -> dict[str, float]:
        """Log-probability of each candidate if one of them has to be written.

        Where several begin with the same token, that token is read and the rest compared after it.
        No candidate is the beginning of another.
        """
        import torch

        by_first: dict[int, list[str]] = {}
        for value, ids in candidates.items():
            by_first.setdefault(ids[0], []).append(value)
        firsts = list(by_first)
        shares = torch.log_softmax(self.logits(firsts), dim=0).tolist()
        found: dict[str, float] = {}
        for first, share in zip(firsts, shares, strict=True):
            values = by_first[first]
            if len(values) == 1:
                found[values[0]] = share
                continue
            hidden, length = self.hidden, self.length
            self.read([first])
            rest = {value: candidates[value][1:] for value in values}
            found |= {value: share + more for value, more in self.compare(rest).items()}
            self._kept.cut(length)
            self._hidden = hidden
        return {value: found[value] for value in candidates}

    def write(
        self, grammar: Any, limit: int, closing: Sequence[int], draw: torch.Generator | None
    ) -> list[int]:
        """Tokens that the grammar allows, up to its end: the most likely ones, or drawn.

        After ``limit`` tokens those of ``closing`` are taken, where allowed.
        """
        import torch
        import xgrammar

        matcher = xgrammar.GrammarMatcher(grammar)
        allowed = xgrammar.allocate_token_bitmask(1, vocabulary(self.model))
        ending = torch.tensor(closing)
        written: list[int] = []
        while len(written) < limit + TO_END:
            matcher.fill_next_token_bitmask(allowed)
            logits = self.logits()[None, :].cpu()
            xgrammar.apply_token_bitmask_inplace(logits, allowed)
            ends = logits[0, ending]
            if len(written) >= limit and bool(torch.isfinite(ends).any()):
                token = int(ending[torch.argmax(ends)])
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

    def end(self) -> Kept:
        """What was read of the prompt, without what was appended."""
        self._kept.cut(len(self.ids))
        return self._kept


def vocabulary(model: Any) -> int:
    """Tokens that a model has logits for; a tokenizer may know fewer."""
    return int(model.get_output_embeddings().weight.shape[0])


def _one_is_slow(model: Any) -> bool:
    """Does one token take longer than two?

    On a CPU PyTorch multiplies a bf16 matrix with a vector five times as slowly as with two.
    """
    import torch

    weight = model.get_output_embeddings().weight
    plain = getattr(model, "hf_quantizer", None) is None
    return bool(plain and weight.device.type == "cpu" and weight.dtype is torch.bfloat16)
