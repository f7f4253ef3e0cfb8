"""Neighbours are drawn by seeds that come with what is asked, so that the same is drawn again.

A server of DGL draws for all trainers from one generator, so what a minibatch holds depends on who
asked before. Here every request carries a seed of its own, made of what is sampled (seed of the
run, rank, epoch, minibatch): a run that is resumed trains the minibatches that it would have
trained, and so does one that is repeated.
"""

from __future__ import annotations

from typing import Any, Literal

import dgl
import numpy as np
from dgl.distributed import graph_services, rpc

_SERVICE_ID = 6690
"""Of requests with a seed; DGL's own for sampling are 6657 to 6662."""
_KINDS = ("train", "presample", "validate", "test")
_SEEDS = 2**31
_STRIDE = 0x9E3779B1  # odd, so that the seeds of one draw's requests are distinct


class _Drawing:
    """Whose turn it is; every draw of a trainer holds the lock of DGL's client."""

    base = 0
    requests = 0


def draw_for(
    kind: Literal["train", "presample", "validate", "test"],
    seed: int,
    rank: int,
    epoch: int,
    minibatch: int = 0,
) -> None:
    """What this thread samples next is drawn by these numbers alone."""
    key = (_KINDS.index(kind), seed, rank, epoch, minibatch)
    _Drawing.base = int(np.random.SeedSequence(key).generate_state(1)[0]) % _SEEDS
    _Drawing.requests = 0
    dgl.seed(_Drawing.base)


class SeededResponse(graph_services.SubgraphResponse):  # type: ignore[misc]
    """DGL's response, told apart from the one that requests without a seed get."""


class SeededSampling(graph_services.SamplingRequest):  # type: ignore[misc]
    """DGL's request for sampled neighbours, with the seed by which the server draws them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _Drawing.requests += 1
        self.seed = (_Drawing.base + _STRIDE * _Drawing.requests) % _SEEDS

    def __getstate__(self) -> tuple[Any, ...]:
        return (*super().__getstate__(), self.seed)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        *given, self.seed = state
        super().__setstate__(tuple(given))

    def process_request(self, server_state: Any) -> Any:
        dgl.seed(self.seed)
        drawn = super().process_request(server_state)
        return SeededResponse(
            drawn.global_src, drawn.global_dst, global_eids=drawn.global_eids,
            etype_ids=drawn.etype_ids,
        )  # fmt: skip


def answer_seeded() -> None:
    """Let this process, a server, answer requests with a seed."""
    rpc.register_service(_SERVICE_ID, SeededSampling, SeededResponse)


def ask_seeded() -> None:
    """Let this process, a trainer, send its seeds along; its servers must be Rudder's.

    DGL numbers threads as they first draw, and what a thread draws depends on its number: the
    calling one has the first, so that the pulling one has the second, whatever is drawn before.
    """
    dgl.seed(0)
    answer_seeded()
    graph_services.SamplingRequest = SeededSampling
