"""The agent through HTTP: a small server over the default model's weights that keeps to the schema.

Kept short: the server allows no explanation, so that an answer ends with its last decision.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rudder_controllers.llm.answers import answer_schema, parse_answer
from rudder_controllers.llm.backends.local import LocalBackend
from rudder_controllers.llm.prompt import Prompt

from rudder.engine import RunOptions
from rudder.home import Home
from rudder.registries import ENGINES
from rudder.replay.engine import ReplayEngine
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.trace import Trace

from .http_servers import Handler, Server, completion, serving

pytestmark = pytest.mark.llm

MakeTrace = Callable[[int, int], Trace]
TRAINED = ["rank", "epoch", "step", "seeds", "local", "remote_sampled"]
# Slow links: training outlasts some answers, also of a busy machine.
SCENARIO = {
    "graph": "sbm:nodes=4000", "parts": 2, "epochs": 20, "batch_size": 50, "seed": 1, "rate": 20.0,
}  # fmt: skip


@pytest.fixture
def server(model: LocalBackend) -> Iterator[Server]:
    """Enforces the schema that it is asked for, and takes no question without one."""
    turn, over = threading.Lock(), threading.Event()

    def reply(handler: Handler) -> None:
        body = handler.server.seen[-1][2]
        form = body.get("response_format", {})
        if form.get("type") != "json_schema":
            handler.answer(400, b'{"error": "a json_schema is wanted"}')
            return
        schema = copy.deepcopy(form["json_schema"]["schema"])
        schema["properties"]["explanation"] = {"type": "string", "enum": [""]}
        system, user = (message["content"] for message in body["messages"])
        with turn:
            if over.is_set():
                return
            written = model.generate(Prompt(system, user), schema, body.get("seed"))
        usage = {
            "prompt_tokens": written.usage.prompt_tokens,
            "completion_tokens": written.usage.answer_tokens,
        }
        handler.answer(200, completion(written.text, usage))

    with serving() as made:
        made.reply = reply
        yield made
        # A thread that still writes when the interpreter ends would take the process down.
        over.set()
        with turn:
            pass


def spec(server: Server, **more: Any) -> Spec:
    params = {"url": server.url, "template": "brief-v1", "shots": 0, "timeout_s": 60.0, **more}
    return Spec("smollm2-135m-server", params)


def check(found: RunResult, server: Server) -> None:
    """Every decision is the answer that the server gave to its question."""
    assert found.summary["valid_share"] == 1.0
    assert found.details["steering"]["asked"] == len(found.decisions) == found.summary["decisions"]
    sent = {body["messages"][1]["content"] for _, _, body in server.seen}
    for line in found.decisions:
        decision, details = line["decision"], line["decision"]["details"]
        assert line["outcome"] == "valid"
        assert details["structured_by"] == "json_schema"
        assert "ignores_schema" not in details
        assert details["dynamic"] in sent
        answer = parse_answer(details["text"])
        assert decision["replace"] == (answer.decision == "replace")
        assert decision["expected_hits"] == answer.expected_hits
        assert decision["expected_communication"] == answer.expected_communication
        assert min(details["prompt_tokens"], details["answer_tokens"]) > 20
    for _, _, body in server.seen:
        assert body["response_format"]["json_schema"]["schema"] == answer_schema()


def test_in_a_replay(server: Server, home: Home, small_trace: MakeTrace) -> None:
    trace = small_trace(2, 3)
    engine = ReplayEngine(trace)

    def run(controller: Spec) -> RunResult:
        return engine.run(engine.scenario, controller, RunOptions(home, home.runs / "run"))

    found = run(spec(server))
    assert found.summary["decisions"] == len(server.seen) == 4
    check(found, server)
    plain = run(Spec("none"))
    assert found.minibatches.select(TRAINED) == plain.minibatches.select(TRAINED)


@pytest.mark.full
@pytest.mark.cluster
def test_in_a_real_run(server: Server, home: Home) -> None:
    """Every row that is served to the GNN is compared with the stored one."""
    options = RunOptions(home, home.runs / "run", verify=True)
    engine = ENGINES.build("distdgl")
    found: RunResult = engine.run(Scenario.make(**SCENARIO), spec(server), options)
    assert found.summary["decisions"] >= 2
    check(found, server)
    assert {line["waited_s"] for line in found.decisions} == {0.0}
    steps = found.minibatches.column("step").to_pylist()
    assert len(steps) == 2 * (max(steps) + 1)  # every minibatch of both trainers
