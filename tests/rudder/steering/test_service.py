"""One process that serves several trainers: loading once, death, hanging, the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rudder import Decision, Observation, Spec
from rudder.conformance.situations import episode, task
from rudder.errors import ControllerError
from rudder.plugins import PluginFile, load_file
from rudder.result import MinibatchRow
from rudder.steering import ControllerService, ServedController, Steering, steer
from rudder.steering import service as keeping

PLUGIN = '''
"""A controller whose trainers share what is loaded, and that can be told to misbehave."""
import os
import time
from pathlib import Path

from rudder import Capabilities, Controller, Decision
from rudder.registries import CONTROLLERS


class Shared(Controller):
    tags = Capabilities(own_process=True, shared=True, deadline_s=20.0)

    def __init__(self, folder, die_at=-1, hang_at=-1, full_at=-1, fail="", slow_s=0.0):
        self.folder, self.die_at, self.hang_at = folder, die_at, hang_at
        self.full_at = full_at
        self.fail, self.slow_s = fail, slow_s

    def _load(self, progress):
        if self.fail == "load":
            raise FileNotFoundError("weights.bin")
        progress("weights", 0.5)
        with open(self.folder + "/loads", "a") as log:
            log.write(f"{os.getpid()}\\n")
        return "weights"

    def _adopt(self, loaded):
        self.loaded = loaded

    def _reset(self, task):
        if self.fail == "reset":
            raise ValueError("no such rank")
        self.rank = task.rank

    def _decide(self, observation):
        print("libraries print")
        time.sleep(self.slow_s)
        if observation.index == self.die_at and not os.path.exists(self.folder + "/died"):
            Path(self.folder, "died").touch()
            os._exit(7)
        if observation.index == self.hang_at:
            time.sleep(60)
        if observation.index == self.full_at:
            import resource
            used = 1024 * int(open("/proc/self/statm").read().split()[0]) * 4
            resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
            bytearray(1 << 30)
        return Decision(True, explanation=f"{self.loaded} {self.rank} {os.getpid()}")


CONTROLLERS.register("test-shared", Shared, summary="for tests")
'''


@pytest.fixture
def plugin(tmp_path: Path) -> PluginFile:
    path = tmp_path / "shared.py"
    path.write_text(PLUGIN)
    return load_file(path)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_PING_S", 0.1)
    monkeypatch.setattr(keeping, "_SILENCE_S", 1.0)


Serve = Callable[..., ControllerService]


@pytest.fixture
def serve(plugin: PluginFile, tmp_path: Path) -> Iterator[Serve]:
    """Makes services; every one that was entered must have left nothing."""
    made: list[ControllerService] = []

    def make(params: dict[str, object] | None = None, **options: object) -> ControllerService:
        spec = Spec("test-shared", {"folder": str(tmp_path), **(params or {})})
        made.append(
            ControllerService(spec, [plugin], log=tmp_path / "log", **options)  # type: ignore[arg-type]
        )
        return made[-1]

    yield make
    assert [service.pid for service in made] == [None] * len(made)


def client(service: ControllerService, plugin: PluginFile, rank: int = 0) -> ServedController:
    controller = ServedController(service.socket, service._spec, [plugin], again_timeout_s=0.1)
    controller.reset(task(rank=rank))
    return controller


def loads(folder: Path) -> list[str]:
    return (folder / "loads").read_text().split()


def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def ask_until_valid(controller: ServedController, observation: Observation) -> list[Decision]:
    """Answers up to the first valid one."""
    answers: list[Decision] = []

    def valid() -> bool:
        answers.append(controller.decide(observation))
        return answers[-1].outcome == "valid"

    until(valid)
    return answers


def test_one_process_loads_once_and_serves_every_trainer(
    serve: Serve, plugin: PluginFile, tmp_path: Path
) -> None:
    told: list[tuple[str, float]] = []
    with serve(progress=lambda *what: told.append(what)) as service:
        clients = [client(service, plugin, rank) for rank in range(4)]
        words = [c.decide(episode()[0]).explanation.split() for c in clients]
        assert [word[:2] for word in words] == [["weights", str(rank)] for rank in range(4)]
        assert {word[2] for word in words} == {str(service.pid)} == set(loads(tmp_path))
        for c in clients:
            c.close()
    assert told == [("weights", 0.5)]
    assert len(loads(tmp_path)) == 1
    assert "libraries print" in (tmp_path / "log").read_text()


def test_answers_are_worked_out_one_at_a_time(serve: Serve, plugin: PluginFile) -> None:
    with serve({"slow_s": 0.2}) as service:
        clients = [client(service, plugin, rank) for rank in range(3)]
        start = time.monotonic()
        threads = [threading.Thread(target=c.decide, args=(episode()[0],)) for c in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - start >= 0.6
        for c in clients:
            c.close()


def test_a_process_that_dies_is_counted_and_started_again(
    serve: Serve, plugin: PluginFile, tmp_path: Path
) -> None:
    seen = episode()
    with serve({"die_at": 1}) as service:
        controller = client(service, plugin)
        assert controller.decide(seen[0]).outcome == "valid"
        assert "died" in controller.decide(seen[1]).explanation
        answers = ask_until_valid(controller, seen[2])
        assert {a.outcome for a in answers[:-1]} <= {"error"}
        assert not any(a.replace for a in answers[:-1])
        assert service.events["deaths"] == service.events["restarts"] == 1
        controller.close()
    assert len(set(loads(tmp_path))) == 2


def test_a_process_without_memory_is_counted_and_started_again(
    serve: Serve, plugin: PluginFile, tmp_path: Path
) -> None:
    seen = episode()
    with serve({"full_at": 1}) as service:
        first, other = client(service, plugin), client(service, plugin, rank=1)
        assert first.decide(seen[0]).outcome == "valid"
        full = first.decide(seen[1])
        assert (full.outcome, full.replace) == ("error", False)
        assert full.explanation.startswith("MemoryError")
        for controller in (first, other):
            answers = ask_until_valid(controller, seen[2])
            assert {a.outcome for a in answers[:-1]} <= {"error"}
            controller.close()
        counts = ("out_of_memory", "restarts", "deaths", "hangs")
        assert [service.events[name] for name in counts] == [1, 1, 0, 0]
    assert len(set(loads(tmp_path))) == 2


@pytest.mark.parametrize("how", ["busy for too long", "stopped"])
def test_a_process_that_hangs_is_ended_and_started_again(
    serve: Serve, plugin: PluginFile, how: str
) -> None:
    params = {"hang_at": 1} if how == "busy for too long" else {}
    with serve(params, answer_timeout_s=0.5) as service:
        controller = client(service, plugin)
        assert controller.decide(episode()[0]).outcome == "valid"
        if how == "stopped":
            assert service.pid is not None
            os.kill(service.pid, signal.SIGSTOP)
        assert controller.decide(episode()[1]).outcome == "error"
        ask_until_valid(controller, episode()[2])
        assert service.events["hangs"] == 1
        controller.close()


def test_restarts_are_bounded(serve: Serve, plugin: PluginFile) -> None:
    with serve(restarts=1) as service:
        controller = client(service, plugin)
        for killed in (1, 2):
            assert service.pid is not None
            os.kill(service.pid, signal.SIGKILL)
            until(lambda killed=killed: service.events["deaths"] == killed)  # type: ignore[misc]
            if killed == 1:
                ask_until_valid(controller, episode()[0])
        until(lambda: service.pid is None)
        assert controller.decide(episode()[1]).outcome == "error"
        assert service.events["restarts"] == 1
        controller.close()


def test_what_cannot_be_loaded_or_reset_is_told(serve: Serve, plugin: PluginFile) -> None:
    with pytest.raises(ControllerError, match=r"FileNotFoundError: weights\.bin"):
        serve({"fail": "load"}).__enter__()
    with serve({"fail": "reset"}) as service, pytest.raises(ControllerError, match="no such rank"):
        client(service, plugin)


def test_without_a_service_connecting_ends_in_time(tmp_path: Path) -> None:
    lonely = ServedController(tmp_path / "none.sock", Spec("always"), start_timeout_s=0.2)
    with pytest.raises(ControllerError, match="cannot be reached"):
        lonely.reset(task())


def test_steering_asks_the_service(
    serve: Serve, plugin: PluginFile, make_row: Callable[..., MinibatchRow], tmp_path: Path
) -> None:
    with serve() as service:
        steering: Steering = steer(
            service._spec, task(), mode="sync", plugins=[plugin], service=service.socket
        )
        decisions = []
        for step in range(4):
            decisions.append(steering.before_pull(step).decision)
            steering.after_pull(make_row(step))
        assert steering.close().valid >= 3
        assert decisions[1] is not None
        assert decisions[1].explanation.split()[2] == str(service.pid)


def test_the_process_ends_with_its_launcher(plugin: PluginFile, tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from rudder import Spec\n"
        "from rudder.plugins import PluginFile\n"
        "from rudder.steering import ControllerService\n"
        f"plugin = PluginFile({plugin.path!r}, {plugin.sha256!r})\n"
        f"spec = Spec('test-shared', {{'folder': {str(tmp_path)!r}}})\n"
        "with ControllerService(spec, [plugin]) as service:\n"
        "    print(service.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-I", "-c", code], stdout=subprocess.PIPE, text=True
    )
    assert launcher.stdout is not None
    pid = int(launcher.stdout.readline())
    launcher.kill()
    launcher.wait()
    launcher.stdout.close()
    until(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
