"""Servers that people use, over the default model's weights: llama.cpp's and transformers'."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from rudder_controllers.llm.backends.weights import find_weights, locate

from rudder.engine import RunOptions
from rudder.home import Home
from rudder.registries import ENGINES
from rudder.replay.engine import ReplayEngine
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.trace import Trace

from .conftest import MODEL, silent
from .real_servers import free_port, llama_cpp_python, running, transformers_python

pytestmark = [pytest.mark.full, pytest.mark.llm]

SCENARIO = {"graph": "sbm:nodes=4000", "parts": 2, "epochs": 60, "batch_size": 50, "seed": 1}
HELLO = {"role": "user", "content": "Hello"}
MakeTrace = Callable[[int, int], Trace]


@pytest.fixture(scope="module")
def llama_cpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of llama-cpp-python's server: takes ``json_object`` with a schema, no ``json_schema``."""
    port = free_port()
    command = [
        llama_cpp_python(), "-I", "-m", "llama_cpp.server", "--model", locate(MODEL),
        "--host", "127.0.0.1", "--port", port, "--n_ctx", 4096, "--n_threads", 1,
    ]  # fmt: skip
    log = tmp_path_factory.mktemp("llama") / "log"
    with running([str(word) for word in command], port, "/v1/models", log) as url:
        yield url


@pytest.fixture(scope="module")
def transformers_serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of ``transformers serve``: ignores every schema, and always streams."""
    port, weights = free_port(), find_weights(MODEL, silent).folder
    command = [
        transformers_python(), "-I", "-m", "transformers.commands.transformers_cli", "serve",
        "--host", "127.0.0.1", "--port", port, "--dtype", "bfloat16",
    ]  # fmt: skip
    log = tmp_path_factory.mktemp("transformers") / "log"
    with running([str(word) for word in command], port, "/health", log) as url:
        # Weights are loaded with the first question.
        body = {"model": str(weights), "messages": [HELLO], "max_tokens": 1}
        requests.post(f"{url}/chat/completions", json=body, timeout=120).raise_for_status()
        yield url


def spec(url: str, model: str, **more: object) -> str:
    params = {"url": f'"{url}"', "model": f'"{model}"', "template": "brief-v1", "shots": 0, **more}
    told = ",".join(f"{name}={value}" for name, value in params.items())
    return f"smollm2-135m-server:timeout_s=120.0,deadline_s=120.0,{told}"


def replay(trace: Trace, home: Home, controller: str) -> RunResult:
    engine = ReplayEngine(trace)
    return engine.run(engine.scenario, Spec.parse(controller), RunOptions(home, home.runs / "run"))


def train(home: Home, controller: str, **fields: Any) -> RunResult:
    """A real run; every row that is served to the model is compared with the stored one."""
    options = RunOptions(home, home.runs / "run", verify=True)
    scenario = Scenario.make(**{**SCENARIO, **fields})
    engine = ENGINES.build("distdgl")
    result: RunResult = engine.run(scenario, Spec.parse(controller), options)
    steps = result.minibatches.column("step").to_pylist()
    assert len(steps) == 2 * (max(steps) + 1)  # every minibatch of both trainers
    assert {line["waited_s"] for line in result.decisions} == {0.0}
    return result


def test_llama_cpp_answers_by_the_schema(
    llama_cpp: str, home: Home, small_trace: MakeTrace
) -> None:
    found = replay(small_trace(2, 3), home, spec(llama_cpp, "smollm2"))
    assert found.summary["valid_share"] == 1.0
    details = [line["decision"]["details"] for line in found.decisions]
    assert len(details) == 4
    # json_schema is refused with a status 500, or taken, by version: either way it is kept to.
    assert {d["structured_by"] for d in details} <= {"json_schema", "json_object"}
    assert not any("ignores_schema" in d for d in details)
    assert all(d["prompt_tokens"] > 100 < 10 * d["answer_tokens"] for d in details)


@pytest.mark.cluster
def test_llama_cpp_steers_a_real_run(llama_cpp: str, home: Home) -> None:
    found = train(home, spec(llama_cpp, "smollm2"))
    assert found.summary["valid_share"] == 1.0
    assert found.summary["decisions"] >= 2


@pytest.mark.cluster
def test_transformers_serve_is_found_out_in_a_real_run(transformers_serve: str, home: Home) -> None:
    """It ignores the schema: each answer is invalid and counted, training goes on."""
    weights = find_weights(MODEL, silent).folder
    # Nothing ends its text but the limit of tokens: slow links let training outlast some answers.
    found = train(home, spec(transformers_serve, str(weights)), rate=10.0, epochs=12)
    counts = found.details["steering"]
    assert counts["invalid"] >= 1
    # A busy machine may take longer over a text than the deadline; that is counted, too.
    assert counts["invalid"] + counts["timeouts"] == counts["asked"]
    assert found.summary["valid_share"] == 0.0
    told = [line["decision"]["details"] for line in found.decisions if line["outcome"] == "invalid"]
    assert len(told) == counts["invalid"]
    assert all(details["ignores_schema"] and details["text"] for details in told)
    facts = next(details["model"] for details in told if "model" in details)
    assert (facts["structured_by"], facts["ignores_schema"]) == ("json_schema", True)
    log = Path(found.run_dir or "", "logs", "controller.log").read_text()
    assert "takes a schema by json_schema and ignores it" in log
    assert found.summary["replaced"] == 0


def test_transformers_serve_with_an_error(
    transformers_serve: str, home: Home, small_trace: MakeTrace
) -> None:
    """An error leaves its client waiting, or cuts the stream; neither is an answer."""
    asked = spec(transformers_serve, os.devnull, retries=0).replace("=120.0", "=5.0")
    found = replay(small_trace(2, 3), home, asked)
    assert found.details["steering"]["errors"] == found.details["steering"]["asked"] == 4
    told = {line["decision"]["explanation"] for line in found.decisions}
    assert all(one.startswith("BackendError: ") for one in told), told
