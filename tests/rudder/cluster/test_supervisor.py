"""The supervisor on plain processes, without any host."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rudder.cluster.hosts import Cluster, Counters, Host, RoleProcess
from rudder.cluster.report import VARIABLE, Report
from rudder.cluster.roles import Role
from rudder.cluster.supervisor import Deadline, Supervisor, last_lines
from rudder.errors import ClusterError, RoleError, UsageError


class PlainProcess(RoleProcess):
    def __init__(self, role: Role) -> None:
        self.role = role
        self.output, writer = os.pipe()
        self.child = subprocess.Popen(
            role.command(),
            stdout=writer,
            stderr=writer,
            env={**os.environ, VARIABLE: "1", **role.env},
            start_new_session=True,
        )
        os.close(writer)
        self._ended_at = 0.0

    def poll(self) -> int | None:
        status = self.child.poll()
        if status is not None and not self._ended_at:
            self._ended_at = time.monotonic()
        return status

    @property
    def ended_at(self) -> float:
        return self._ended_at

    def send_signal(self, number: int) -> None:
        self.child.send_signal(number)


class PlainCluster(Cluster):
    """Two hosts that are both this machine."""

    def __init__(self) -> None:
        self.hosts = (Host(0, "host0", "127.0.0.1"), Host(1, "host1", "127.0.0.2"))
        self.processes: list[PlainProcess] = []
        self.cleaned = 0
        self.broken: str | None = None

    def __enter__(self) -> PlainCluster:
        return self

    def __exit__(self, *_: Any) -> None:
        for process in self.processes:
            process.child.kill()
            process.child.wait()

    def spawn(self, role: Role) -> PlainProcess:
        self.processes.append(PlainProcess(role))
        return self.processes[-1]

    def failure(self) -> str | None:
        return self.broken

    def clean(self) -> None:
        self.cleaned += 1

    def counters(self) -> list[Counters]:
        return [Counters(0, 0), Counters(0, 0)]

    def shape(self, rate_mbit: float) -> None:
        raise NotImplementedError


@pytest.fixture
def cluster() -> Iterator[PlainCluster]:
    with PlainCluster() as made:
        yield made


@pytest.fixture
def role(tmp_path: Path) -> Any:
    """Makes a role from a line of Python."""

    def make(code: str, kind: str = "trainer", index: int = 0, **more: Any) -> Role:
        prelude = (
            "import os, sys, time, signal\nfrom rudder.cluster.report import report\n"
            "pause = lambda: time.sleep(60)\n"
        )
        return Role(
            host=more.pop("host", index % 2),
            kind=kind,
            index=index,
            log=tmp_path / "logs" / f"{kind}-{index}.log",
            argv=(sys.executable, "-I", "-u", "-c", prelude + code),
            **more,
        )

    return make


def alive(cluster: PlainCluster) -> int:
    return sum(process.child.poll() is None for process in cluster.processes)


def test_reports_reach_the_callback_and_prints_the_log(cluster: PlainCluster, role: Any) -> None:
    heard: list[tuple[str, Report]] = []
    roles = [role(f"print('text {k}'); report('ready', k={k})", index=k) for k in range(2)]
    Supervisor(cluster).run(
        roles,
        [Deadline("ready", 30, ("trainer",))],
        on_report=lambda who, what: heard.append((who.name, what)),
    )
    assert sorted(heard, key=str) == [
        ("trainer 0 on host0", Report("ready", {"k": 0})),
        ("trainer 1 on host1", Report("ready", {"k": 1})),
    ]
    assert [r.log.read_text() for r in roles] == ["text 0\n", "text 1\n"]
    assert cluster.cleaned == 1


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("print('the cause'); sys.exit(3)", "ended with exit status 3"),
        ("print('the cause'); os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
    ],
)
def test_the_first_failure_ends_the_job_and_is_named(
    cluster: PlainCluster, role: Any, code: str, how: str
) -> None:
    start = time.monotonic()
    with pytest.raises(RoleError) as caught:
        Supervisor(cluster).run([role("pause()"), role(code, index=1), role("pause()", "server")])
    assert time.monotonic() - start < 10
    message = str(caught.value)
    assert f"trainer 1 on host1 (127.0.0.2) {how}" in message
    assert "    the cause" in message
    assert "logs/trainer-1.log" in message
    assert alive(cluster) == 0


def test_only_the_last_lines_of_a_long_log_are_shown(cluster: PlainCluster, role: Any) -> None:
    with pytest.raises(RoleError) as caught:
        Supervisor(cluster).run([role("[print('line', k) for k in range(1000)]; sys.exit(1)")])
    assert "line 999" in str(caught.value)
    assert "line 985" in str(caught.value)
    assert "line 984" not in str(caught.value)


def test_a_role_that_was_killed_comes_before_one_that_noticed(
    cluster: PlainCluster, role: Any
) -> None:
    noticed = role("time.sleep(0.3); sys.exit(1)")
    killed = role("time.sleep(0.3); os.kill(os.getpid(), 9)", "server", 1, service=True)
    with pytest.raises(RoleError, match=r"^server 1 on host1 .* killed by SIGKILL") as caught:
        Supervisor(cluster).run([noticed, killed])
    assert "After it failed: trainer 0 on host0" in str(caught.value)


def test_a_missed_deadline_names_every_role_that_is_missing(
    cluster: PlainCluster, role: Any
) -> None:
    roles = [role("report('ready'); pause()" if k == 1 else "pause()", index=k) for k in range(3)]
    with pytest.raises(RoleError) as caught:
        Supervisor(cluster).run(roles, [Deadline("ready", 1.5, ("trainer",))])
    message = str(caught.value)
    assert "no 'ready' within 1.5 s from trainer 0 on host0 (127.0.0.1), trainer 2" in message
    assert "trainer 1" not in message
    assert alive(cluster) == 0


def test_a_deadline_is_for_its_kinds_only(cluster: PlainCluster, role: Any) -> None:
    roles = [role("report('ready'); time.sleep(1)"), role("time.sleep(1)", "script", 1)]
    Supervisor(cluster).run(roles, [Deadline("ready", 0.9, ("trainer",))])


def test_ending_well_without_the_report_that_was_due_is_a_failure(
    cluster: PlainCluster, role: Any
) -> None:
    with pytest.raises(RoleError, match=r"trainer 0 .* without having reported 'ready'"):
        Supervisor(cluster).run([role("pass")], [Deadline("ready", 60, ("trainer",))])


def test_silence_after_ready_ends_the_job(cluster: PlainCluster, role: Any) -> None:
    roles = [role("report('ready'); report('step'); pause()"), role("pause()", index=1)]
    with pytest.raises(RoleError) as caught:
        Supervisor(cluster).run(roles, silence=0.7)
    assert "no report of any role for 1 s (the limit is 0.7 s)" in str(caught.value)
    assert "trainer 0 on host0 (127.0.0.1): 'step' 1 s ago" in str(caught.value)
    assert "trainer 1 on host1 (127.0.0.2): nothing" in str(caught.value)


def test_silence_before_ready_is_what_deadlines_are_for(cluster: PlainCluster, role: Any) -> None:
    Supervisor(cluster).run([role("time.sleep(1)")], silence=0.2)


def test_services_end_with_the_job(cluster: PlainCluster, role: Any) -> None:
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN); report('up'); pause()"
    services = [role("pause()", "server", 0, service=True)]
    services += [role(stubborn, "server", 1, service=True)]
    supervisor = Supervisor(cluster, stop_grace=0.3, service_grace=0.2)
    start = time.monotonic()
    supervisor.run([*services, role("time.sleep(0.5)")])
    assert time.monotonic() - start < 8
    assert alive(cluster) == 0
    assert cluster.processes[1].child.returncode == -signal.SIGKILL


def test_a_service_may_end_by_itself_but_not_badly(
    cluster: PlainCluster, role: Any, caplog: pytest.LogCaptureFixture
) -> None:
    Supervisor(cluster).run([role("pass", "server", service=True), role("time.sleep(0.3)")])
    with pytest.raises(RoleError, match=r"server 0 on host0 .* exit status 2"):
        Supervisor(cluster).run([role("sys.exit(2)", "server", service=True), role("pause()")])
    with caplog.at_level(logging.WARNING):
        late = role("time.sleep(1.5); sys.exit(2)", "server", service=True)
        Supervisor(cluster).run([late, role("pass")])
    assert "server 0 on host0 ended with exit status 2 when the job was done" in caplog.text


def test_others_cannot_go_on_forever_without_a_service(cluster: PlainCluster, role: Any) -> None:
    supervisor = Supervisor(cluster, after_services=0.3)
    with pytest.raises(RoleError, match=r"still running: trainer 0 on host0"):
        supervisor.run([role("pass", "server", service=True), role("pause()")])


def test_a_slow_callback_does_not_hold_up_a_role(cluster: PlainCluster, role: Any) -> None:
    code = (
        "start = time.monotonic()\n"
        "for k in range(300): report('step', k=k, text='x' * 2000)\n"
        "report('done', seconds=time.monotonic() - start)"
    )
    steps: list[int] = []
    seconds: list[float] = []

    def slow(_: Role, what: Report) -> None:
        if what.phase == "done":
            seconds.append(what.data["seconds"])
            return
        steps.append(what.data["k"])
        time.sleep(0.005)

    Supervisor(cluster).run([role(code)], on_report=slow)
    assert steps == list(range(300))
    assert seconds[0] < 300 * 0.005


def test_an_exception_of_the_callback_ends_the_job(cluster: PlainCluster, role: Any) -> None:
    def refuse(_: Role, what: Report) -> None:
        raise ValueError("no such phase")

    with pytest.raises(ValueError, match=r"no such phase"):
        Supervisor(cluster).run(
            [role("report('x'); pause()"), role("pause()", index=1)], (), None, refuse
        )
    assert alive(cluster) == 0


def test_a_dead_host_is_the_cause_not_its_roles(cluster: PlainCluster, role: Any) -> None:
    def break_host(_: Role, __: Report) -> None:
        cluster.processes[1].child.kill()
        threading.Timer(0.2, setattr, (cluster, "broken", "host1 (127.0.0.2) died")).start()

    roles = [role("pause()"), role("report('ready'); pause()", index=1)]
    with pytest.raises(ClusterError, match=r"^host1 .* died") as caught:
        Supervisor(cluster).run(roles, on_report=break_host)
    assert not isinstance(caught.value, RoleError)
    assert "With it: trainer 1 on host1" in str(caught.value)


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_signals_end_everything_and_then_have_their_usual_effect(
    cluster: PlainCluster, role: Any, number: int, kind: type[BaseException]
) -> None:
    def strike(_: Role, __: Report) -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), number)).start()

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(kind) as caught:
        Supervisor(cluster).run([role("report('ready'); pause()")], on_report=strike)
    if kind is SystemExit:
        assert caught.value.args == (143,)
    assert alive(cluster) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_output_that_cannot_be_kept_is_an_error(cluster: PlainCluster, role: Any) -> None:
    blocked = Role(0, "trainer", 0, Path("/dev/null/log"), argv=("/bin/true",))
    with pytest.raises(
        ClusterError, match=r"cannot make the log of trainer 0 on host0: .*/dev/null"
    ):
        Supervisor(cluster).run([blocked])
    full = Path("/dev/full")
    talker = Role(0, "trainer", 0, full, argv=role("print('x'); pause()").argv)
    with pytest.raises(ClusterError, match=r"cannot keep the output of trainer 0.*No space"):
        Supervisor(cluster).run([talker])


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ([], "never ends"),
        ([("server", 0, 0, True)], "never ends"),
        ([("trainer", 0, 0, False), ("trainer", 0, 1, False)], "two roles are called trainer 0"),
        ([("trainer", 0, 7, False)], "only 2 hosts"),
    ],
)
def test_jobs_that_make_no_sense_are_refused(
    cluster: PlainCluster, role: Any, kinds: Sequence[tuple[str, int, int, bool]], words: str
) -> None:
    roles = [role("pass", k, i, host=h, service=s) for k, i, h, s in kinds]
    with pytest.raises(UsageError, match=words):
        Supervisor(cluster).run(roles)
    assert cluster.processes == []


def test_last_lines_of_a_short_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a\nb\n")
    assert last_lines(log) == ["a", "b"]
    assert last_lines(log, 1) == ["b"]


def test_hosts_that_cannot_be_cleaned_do_not_hide_why_the_job_ended(
    cluster: PlainCluster,
    role: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse() -> None:
        raise ClusterError("host1 has not answered")

    monkeypatch.setattr(cluster, "clean", refuse)
    with pytest.raises(RoleError, match=r"(?s)trainer 0 .* status 3.*host1 has not answered"):
        Supervisor(cluster).run([role("sys.exit(3)")])
    defect = ValueError("of the callback")

    def raise_it(who: Role, what: Report) -> None:
        raise defect

    with pytest.raises(ValueError, match="of the callback"):
        Supervisor(cluster).run([role("report('ready'); pause()")], on_report=raise_it)
    assert "host1 has not answered" in caplog.text
    with pytest.raises(ClusterError, match="host1 has not answered"):
        Supervisor(cluster).run([role("pass")])
