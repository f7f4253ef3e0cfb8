"""The real model beside real DistDGL training: nobody waits for it, and its faults are survived.

What is trained is what a run without a controller trains: every row that is served is compared with
the stored one, and every minibatch is there.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rudder.engine import RunOptions
from rudder.home import Home
from rudder.registries import ENGINES
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.steering import service as keeping

pytestmark = [pytest.mark.cluster, pytest.mark.llm]

SPEC = "smollm2-135m:template=brief-v1,shots=1"
# Small minibatches: a run must outlast some answers, of a second each on a busy machine.
SCENARIO = {"graph": "sbm:nodes=4000", "parts": 2, "epochs": 40, "batch_size": 50, "seed": 1}

Watch = Callable[[str, float], None]


Train = Callable[[str, Watch], RunResult]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Train]:
    """``train("name", watch)``: one run; ``watch`` is told how far it is."""
    home = Home.resolve(tmp_path_factory.mktemp("trained"))
    engine = ENGINES.build("distdgl")

    def run(name: str, watch: Watch) -> RunResult:
        options = RunOptions(home, home.runs / name, progress=watch, verify=True)
        result: RunResult = engine.run(Scenario.make(**SCENARIO), Spec.parse(SPEC), options)
        steps = result.minibatches.column("step").to_pylist()
        assert len(steps) == 2 * (max(steps) + 1)  # every minibatch of both trainers
        return result

    with engine:
        yield run


def model_process() -> int:
    """The process that serves the trainers: a child of this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"rudder.steering.serving" in words and parent == os.getpid():
            found.append(int(folder.name))
    [pid] = found
    return pid


def test_training_never_waits_for_the_model(train: Train) -> None:
    phases: list[str] = []
    result = train("steered", lambda phase, share: phases.append(phase))
    assert result.summary["valid_share"] == 1.0
    assert result.summary["decisions"] >= 2
    service = result.details["service"]
    assert (service["deaths"], service["hangs"], service["restarts"]) == (0, 0, 0)
    # Loaded before the first minibatch, and said so.
    assert phases.index("loading the model") < phases.index("train")
    assert {line["waited_s"] for line in result.decisions} == {0.0}
    assert {line["outcome"] for line in result.decisions} == {"valid"}
    assert {line["rank"] for line in result.decisions} == {0, 1}
    assert all(line["decision"]["details"]["prompt"] for line in result.decisions)


def no_memory(pid: int) -> None:
    """Whatever it asks the kernel for is refused from here on."""
    resource.prlimit(pid, resource.RLIMIT_AS, (1 << 20, 1 << 20))


Harm = Callable[[int], None]
FAULTS: dict[str, tuple[Harm, set[str]]] = {
    "killed": (lambda pid: os.kill(pid, signal.SIGKILL), {"deaths"}),
    "stopped": (lambda pid: os.kill(pid, signal.SIGSTOP), {"hangs"}),
    # Python raises, C++ libraries may end the process, and a thread may be what it cannot start.
    "out of memory": (no_memory, {"out_of_memory", "deaths", "hangs"}),
}


@pytest.mark.parametrize(
    "fault",
    ["killed", *(pytest.param(one, marks=pytest.mark.full) for one in list(FAULTS)[1:])],
)
def test_training_outlives_the_model(
    train: Train, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(keeping, "_PING_S", 0.5)
    monkeypatch.setattr(keeping, "_SILENCE_S", 2.0)
    harm, counted = FAULTS[fault]
    harmed: list[int] = []

    def watch(phase: str, share: float) -> None:
        if phase == "train" and share > 0.2 and not harmed:
            harmed.append(model_process())
            harm(harmed[0])

    result = train(fault, watch)
    assert harmed
    service = result.details["service"]
    events = {name: service[name] for name in ("deaths", "hangs", "out_of_memory")}
    assert sum(events.values()) == 1, events
    assert {name for name, count in events.items() if count} <= counted
    assert service["restarts"] == 1
    assert {line["outcome"] for line in result.decisions} <= {"valid", "error"}
    assert result.details["steering"]["errors"] >= 1
    assert {line["waited_s"] for line in result.decisions} == {0.0}
