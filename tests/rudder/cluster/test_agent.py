"""The agent that starts roles on a remote host, reached by a plain command instead of ssh."""

from __future__ import annotations

import ast
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rudder import leftovers
from rudder.cluster import Host, Role
from rudder.cluster.connection import Connection, RemoteProcess
from rudder.cluster.hosts import output_pipe
from rudder.cluster.shipped import BOOTSTRAP, MODULES
from rudder.cluster.streams import CommandStream
from rudder.errors import ClusterError
from rudder.home import Home

pytestmark = pytest.mark.cluster

MARK = "RUDDER_TEST_MARK"  # roles are marked by the tests, agents are not
AGENT = (sys.executable, "-I", "-u", "-c", BOOTSTRAP)
BOTH = pytest.mark.parametrize("isolated", [True, False], ids=["isolated", "plain"])


@contextmanager
def connected(
    isolated: bool = True, silence_s: float = 30.0, command: tuple[str, ...] = AGENT
) -> Iterator[Connection]:
    config = {"isolated": isolated, "silence_s": silence_s, "env": {"OF_THE_HOST": "1"}}
    env = {name: value for name, value in os.environ.items() if name != MARK}
    link = Connection(Host(0, "host0", "127.0.0.1"), CommandStream(command, env), config)
    try:
        link.wait_up(20)
        yield link
    finally:
        link.close()


def spawn(link: Connection, traces: Any, script: str) -> RemoteProcess:
    role = Role(0, "x", 0, Path("/dev/null"), argv=("/bin/sh", "-c", script))
    env = {traces.VARIABLE: traces.mark, "OF_THE_ROLE": "2"}
    task = {"argv": list(role.argv), "env": env, "cwd": "/usr"}
    return link.spawn(role, task, *output_pipe())


def pid_of(link: Connection) -> int:
    stream = link._stream
    assert isinstance(stream, CommandStream)
    return stream.pid


def until(done: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def read(process: RemoteProcess, enough: Callable[[bytes], bool]) -> bytes:
    said = b""
    os.set_blocking(process.output, True)
    while not enough(said):
        data = os.read(process.output, 1 << 16)
        if not data:
            break
        said += data
    return said


def everything(process: RemoteProcess) -> bytes:
    return read(process, lambda said: False)


@BOTH
def test_a_role_gets_its_environment_and_its_output_comes_back(traces: Any, isolated: bool) -> None:
    with connected(isolated) as link:
        assert link.failure is None
        assert (link.refused is None) == isolated
        process = spawn(link, traces, "echo $OF_THE_HOST $OF_THE_ROLE; pwd; echo no >&2; exit 7")
        assert everything(process) == b"1 2\n/usr\nno\n"
        until(lambda: process.poll() == 7)
        much = spawn(link, traces, "head -c 3000000 /dev/zero; kill -9 $$")
        assert len(everything(much)) == 3_000_000
        until(lambda: much.poll() == -9)
        gone = spawn(link, traces, "sleep 300")
        gone.send_signal(signal.SIGTERM)
        until(lambda: gone.poll() == -signal.SIGTERM)


@BOTH
def test_cleaning_ends_what_roles_leave_behind(traces: Any, isolated: bool) -> None:
    left = Path(f"/dev/shm/rudder-test-{traces.mark}")
    before = Path(f"/dev/shm/rudder-test-before-{traces.mark}")
    before.touch()
    try:
        with connected(isolated) as link:
            script = f"touch {left}; setsid sleep 300 & ls /dev/shm | grep -c rudder-test; exit 0"
            process = spawn(link, traces, script)
            counted = read(process, lambda said: b"\n" in said)
            until(lambda: process.poll() == 0)
            assert counted == (b"1\n" if isolated else b"2\n")  # the one before is not seen
            assert left.exists() != isolated
            assert traces.pids()
            link.ask("clean", 10)
            assert traces.pids() == []
            assert not left.exists()
            assert before.exists()
            assert link.failure is None
    finally:
        before.unlink()


@BOTH
@pytest.mark.parametrize("ending", ["close", "kill", "silence"])
def test_the_agent_ends_its_roles_however_it_ends(traces: Any, isolated: bool, ending: str) -> None:
    with connected(isolated, 1.0 if ending == "silence" else 30.0) as link:
        process = spawn(link, traces, "sleep 300 & echo on; sleep 300")
        read(process, lambda said: b"on" in said)
        if ending == "close":
            link.close()
        elif ending == "kill" and isolated:
            os.kill(pid_of(link), signal.SIGKILL)
        elif ending == "kill":
            os.kill(pid_of(link), signal.SIGTERM)
        until(lambda: process.poll() is not None)
        until(lambda: link.failure is not None)
        if ending == "silence":
            assert "exit status 1" in str(link.failure)
        traces.assert_gone()
        with pytest.raises(ClusterError):
            link.ask("survey", 5, address="127.0.0.1", data="/tmp")


HOLD = """
import mmap, sys, time
file = open(sys.argv[1], "w+b"); file.truncate(4096)
held = mmap.mmap(file.fileno(), 4096); time.sleep(300)
"""


def test_a_killed_agent_leaves_a_note_of_its_arrays(traces: Any, tmp_path: Path) -> None:
    array = Path(f"/dev/shm/rudder-test-{traces.mark}")
    with connected(isolated=False) as link:
        agent = pid_of(link)
        process = spawn(link, traces, f"exec {sys.executable} -I -c '{HOLD}' {array}")
        until(lambda: any(array.name in note.read_text() for note in notes_of(agent)))
        [note] = notes_of(agent)
        os.kill(agent, signal.SIGKILL)
        until(lambda: process.poll() is not None)
        traces.assert_gone()
    found = {left.what: left for left in leftovers.find(Home(tmp_path))}
    for path in (array, note):
        found[str(path)].remove()
        assert not path.exists()


def notes_of(agent: int) -> list[Path]:
    return list(Path("/dev/shm").glob(f"rudder-agent-{agent}-*.json"))


def test_what_a_login_shell_says_first_is_no_part_of_the_stream(traces: Any) -> None:
    script = 'echo "Welcome to node7"; printf "no newline"; exec "$@"'
    with connected(command=("/bin/sh", "-c", script, "sh", *AGENT)) as link:
        assert everything(spawn(link, traces, "echo hello")) == b"hello\n"


def test_a_command_that_reaches_nobody_is_told_with_its_words() -> None:
    with connected(command=("/bin/sh", "-c", "echo no such host >&2; exit 255")) as link:
        until(lambda: link.failure is not None)
        assert "host0 (127.0.0.1): the connection ended (exit status 255); it said: no such" in str(
            link.failure
        )


def test_a_host_that_stops_answering_is_lost_in_time(
    traces: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rudder.cluster.connection.SILENCE_S", 0.5)
    with connected() as link:
        process = spawn(link, traces, "echo on; sleep 300")
        read(process, lambda said: b"on" in said)
        since = time.monotonic()
        for _ in range(10):  # a host that answers stays
            link.check(since)
            time.sleep(0.1)
        assert link.failure is None
        os.killpg(pid_of(link), signal.SIGSTOP)
        until(lambda: link.check(since) or link.failure is not None)
        assert "host0 (127.0.0.1): it has stopped answering" in str(link.failure)
        assert process.poll() == -signal.SIGKILL


def test_an_agent_that_cannot_do_what_is_asked_says_why() -> None:
    with connected() as link:
        with pytest.raises(ClusterError, match=r"host0 .*counters failed: .*no interface wlan7"):
            link.ask("counters", 10, interface="wlan7")
        ports = link.ask("ports", 10, address="127.0.0.1", count=3)
        assert len(set(ports)) == 3
        with pytest.raises(ClusterError, match=r"ports failed: .*Cannot assign"):
            link.ask("ports", 10, address="203.0.113.1", count=1)


def test_what_is_sent_to_hosts_needs_nothing_installed() -> None:
    sent = set(MODULES)
    for name in MODULES:
        path = Path(__file__).parents[3] / f"{name.replace('.', '/')}.py"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                names = [str(node.module)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for module in names:
                top = module.partition(".")[0]
                assert module in sent or top in sys.stdlib_module_names, f"{name}: {module}"
