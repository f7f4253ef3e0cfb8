"""An agent whose server misbehaves: the run is the one without answers, and all is counted."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from rudder.engine import RunOptions
from rudder.home import Home
from rudder.replay.engine import ReplayEngine
from rudder.result import RunResult
from rudder.spec import Spec
from rudder.trace import Trace

from .http_servers import ANSWER, Handler, Reply, Server, completion, cut, drip, flood, serving

MakeTrace = Callable[[int, int], Trace]
TRAINED = ["rank", "epoch", "step", "seeds", "local", "remote_sampled"]
SERVED = [*TRAINED, "hits", "misses", "replaced", "fetched"]
WRONG = json.dumps({"action": "replace", "why": "much is stale"})
REFUSES = "refuses"
"""Nobody listens at the port."""

FAULTS: dict[str, tuple[Reply | None, str, str]] = {
    REFUSES: (None, "error", "refused: "),
    "hangs": (lambda h: time.sleep(20), "error", "timeout: "),
    "500s": (lambda h: h.answer(500, b"{}"), "error", "http: "),
    "drips": (drip, "error", "timeout: "),
    "truncated reply": (lambda h: h.answer(200, completion(ANSWER)[:-9]), "error", "broken: "),
    "truncated answer": (lambda h: h.answer(200, completion(ANSWER[:-9])), "invalid", "no JSON"),
    "wrong schema": (lambda h: h.answer(200, completion(WRONG)), "invalid", "decision: "),
    "10 MB": (flood, "error", "too long: "),
    "closes mid-answer": (cut, "error", "broken: "),
}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


def run(trace: Trace, home: Home, controller: str) -> RunResult:
    engine = ReplayEngine(trace)
    options = RunOptions(home, home.runs / controller[:12])
    return engine.run(engine.scenario, Spec.parse(controller), options)


def rows(result: RunResult, columns: list[str]) -> pa.Table:
    return result.minibatches.select(columns)


@pytest.mark.parametrize("fault", FAULTS)
def test_training_goes_on_and_all_is_counted(
    server: Server, home: Home, small_trace: MakeTrace, fault: str
) -> None:
    reply, outcome, why = FAULTS[fault]
    url = server.url
    if reply is None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    else:
        server.reply = reply
    # Short only where waiting is what is tested: other answers shall not be late by accident.
    timeout_s = 0.3 if why == "timeout: " else 10.0
    spec = f'smollm2-135m-server:url="{url}",timeout_s={timeout_s},retries=0'
    trace = small_trace(2, 3)
    found = run(trace, home, spec)
    counts = found.details["steering"]
    assert counts["asked"] == 4
    assert counts["errors" if outcome == "error" else "invalid"] == 4
    assert found.summary["valid_share"] == 0.0
    told = [line["decision"]["explanation"] for line in found.decisions]
    assert len(told) == 4
    assert all(why in line for line in told), told
    # To the trainers it is the run of a buffer that nobody steers; what is sampled is what a run
    # without a buffer samples.
    assert rows(found, SERVED) == rows(run(trace, home, "fixed:interval=1000"), SERVED)
    assert rows(found, TRAINED) == rows(run(trace, home, "none"), TRAINED)


def test_a_server_that_recovers_steers_again(
    server: Server, home: Home, small_trace: MakeTrace
) -> None:
    """The same trace: an answer that comes changes what is served, and not what is trained."""
    replace = ANSWER.replace('"keep"', '"replace"')

    def reply(handler: Handler) -> None:
        ill = len(server.seen) <= 3
        handler.answer(*((500, b"{}") if ill else (200, completion(replace))))

    server.reply = reply
    trace = small_trace(2, 12)
    found = run(trace, home, f'smollm2-135m-server:url="{server.url}",retries=0')
    # One question in three ways of asking for a schema, all refused.
    assert found.details["steering"]["errors"] == 1
    assert found.summary["valid_share"] == pytest.approx(21 / 22)
    assert found.summary["replaced"] > 0
    assert rows(found, TRAINED) == rows(run(trace, home, "none"), TRAINED)
