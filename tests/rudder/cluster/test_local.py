"""Emulated hosts: what they look like from inside, and what joins them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rudder.cluster import Deadline, LocalCluster, Report, Role, Supervisor
from rudder.errors import ClusterError, NamespaceError, RoleError, UsageError

pytestmark = pytest.mark.cluster

PRELOADS = [pytest.param((), id="cold"), pytest.param(("json", "numpy"), id="warm")]


def run(cluster: LocalCluster, roles: list[Role], **more: Any) -> dict[str, Report]:
    """Run a job; the last report of each role, by the role's name."""
    heard: dict[str, Report] = {}
    Supervisor(cluster).run(roles, on_report=lambda r, what: heard.update({r.name: what}), **more)
    return heard


@pytest.mark.parametrize("preload", PRELOADS)
def test_each_host_is_a_machine_of_its_own(
    tmp_path: Path, traces: Any, preload: tuple[str, ...]
) -> None:
    with LocalCluster(2, preload=preload) as cluster:
        roles = [
            Role(
                host=k,
                kind="trainer",
                index=k,
                log=tmp_path / f"{k}.log",
                entry="cluster_roles:look",
                kwargs={"words": str(k)},
                env={"ROLE_VARIABLE": f"value {k}"},
                cwd=tmp_path,
            )
            for k in range(2)
        ]
        for _ in range(2):  # the second job finds the hosts as clean as the first
            heard = run(cluster, roles)
            for k in range(2):
                seen = heard[f"trainer {k} on host{k}"].data
                assert seen["hostname"] == f"host{k}"
                assert seen["shared"] == ["mine"]
                assert seen["pids"] == 2  # the host's first process and the role
                assert sorted(seen["interfaces"]) == ["eth0", "lo"]
                assert seen["variable"] == f"value {k}"
                assert seen["cwd"] == str(tmp_path)
                assert seen["peer"] == "10.91.0.1"
    assert not Path("/dev/shm/mine").exists()
    assert (tmp_path / "0.log").stat().st_uid == os.getuid()


def test_a_command_runs_as_it_is(tmp_path: Path, traces: Any) -> None:
    made = tmp_path / "made"
    log = tmp_path / "log"
    with LocalCluster(1) as cluster:
        code = (
            f"import sys; open({str(made)!r}, 'w').close(); "
            "print('out'); print('err', file=sys.stderr)"
        )
        role = Role(0, "script", 0, log, argv=(sys.executable, "-c", code))
        run(cluster, [role])
        assert log.read_text() == "out\nerr\n"
        assert made.stat().st_uid == os.getuid()
        with pytest.raises(RoleError, match=r"exit status 127") as caught:
            run(cluster, [Role(0, "script", 0, log, argv=("/no/such/program",))])
        assert "cannot start /no/such/program: " in str(caught.value)
        with pytest.raises(RoleError, match=r"cannot start /nowhere"):
            run(cluster, [Role(0, "script", 0, log, argv=("/bin/true",), cwd=Path("/nowhere"))])


@pytest.mark.parametrize("preload", PRELOADS)
def test_a_script_runs_as_if_python_had_been_called(
    tmp_path: Path, traces: Any, preload: tuple[str, ...]
) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit, sys, beside\n"
        "name = 'known at exit'\n"
        "atexit.register(lambda: print(name))\n"
        "class Thing: pass\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:], beside.VALUE, sys.modules[Thing.__module__].Thing is Thing)\n"
        "    if 'fail' in sys.argv: raise ValueError('asked to fail')\n"
    )
    log = tmp_path / "log"

    def role(*arguments: str) -> Role:
        kwargs = {"path": str(script), "arguments": arguments}
        entry = "rudder.cluster.entry:run_script"
        return Role(0, "script", 0, log, entry=entry, kwargs=kwargs)

    with LocalCluster(1, preload=preload) as cluster:
        run(cluster, [role("a", "b")])
        assert log.read_text() == "['a', 'b'] 7 True\nknown at exit\n"
        with pytest.raises(RoleError, match="exit status 1"):
            run(cluster, [role("fail")])
        assert "ValueError: asked to fail" in log.read_text()
        if preload:
            assert "rudder/cluster" not in log.read_text()


def transfer(cluster: LocalCluster, tmp_path: Path, sender: int, size: int) -> float:
    """Mbit/s that a receiver on the other host measures."""
    receiver = 1 - sender
    roles = [
        Role(
            receiver,
            "receiver",
            0,
            tmp_path / "receiver.log",
            entry="cluster_roles:listen",
            kwargs={"size": size},
        ),
        Role(
            sender,
            "sender",
            0,
            tmp_path / "sender.log",
            entry="cluster_roles:talk",
            kwargs={"address": cluster.hosts[receiver].address, "size": size},
        ),
    ]
    report = run(cluster, roles)[f"receiver 0 on host{receiver}"]
    assert report.data["peer"] == cluster.hosts[sender].address
    return size * 8e-6 / float(report.data["seconds"])


def test_links_have_their_rate_in_both_directions_and_kernel_counters_agree(
    tmp_path: Path, traces: Any
) -> None:
    size = 8_000_000
    with LocalCluster(2, rate=100, preload=("json",)) as cluster:
        assert transfer(cluster, tmp_path, 0, size) == pytest.approx(100, rel=0.15)
        before = cluster.counters()
        assert transfer(cluster, tmp_path, 1, size) == pytest.approx(100, rel=0.15)
        after = cluster.counters()
        sent = after[1].tx_bytes - before[1].tx_bytes
        received = after[0].rx_bytes - before[0].rx_bytes
        assert size < sent < 1.1 * size
        assert size < received < 1.1 * size
        cluster.shape(40)
        assert transfer(cluster, tmp_path, 0, size // 2) == pytest.approx(40, rel=0.15)
        cluster.shape(0)
        assert transfer(cluster, tmp_path, 0, size) > 300
        cluster.shape(100)
        assert transfer(cluster, tmp_path, 0, size) == pytest.approx(100, rel=0.15)
        with pytest.raises(UsageError):
            cluster.shape(-1)


def test_what_a_host_receives_is_limited_too(tmp_path: Path, traces: Any) -> None:
    """Two senders share one receiver's link."""
    size = 3_000_000
    with LocalCluster(3, rate=50, preload=("json",)) as cluster:
        listener = "import socket, time, sys\n" + (
            "s = socket.create_server(('0.0.0.0', 4000)); n = 0\n"
            "peers = [s.accept()[0] for _ in range(2)]; t = time.monotonic()\n"
            "import threading\n"
            f"def take(p):\n    n = 0\n    while n < {size}: n += len(p.recv(65536))\n"
            "ts = [threading.Thread(target=take, args=(p,)) for p in peers]\n"
            "[x.start() for x in ts]; [x.join() for x in ts]\n"
            "print(time.monotonic() - t)"
        )
        log = tmp_path / "listener.log"
        roles = [Role(0, "listener", 0, log, argv=(sys.executable, "-c", listener))]
        roles += [
            Role(
                k,
                "sender",
                k,
                tmp_path / f"{k}.log",
                entry="cluster_roles:talk",
                kwargs={"address": cluster.hosts[0].address, "size": size},
            )
            for k in (1, 2)
        ]
        run(cluster, roles)
    rate = 2 * size * 8e-6 / float(log.read_text())
    assert rate == pytest.approx(50, rel=0.15)


def test_clusters_at_once_do_not_see_each_other(tmp_path: Path, traces: Any) -> None:
    with LocalCluster(2, rate=100) as one, LocalCluster(2) as other:
        assert one.hosts == other.hosts
        before = other.counters()
        transfer(one, tmp_path, 0, 1_000_000)
        moved = [b.rx_bytes - a.rx_bytes for a, b in zip(before, other.counters(), strict=True)]
        assert max(moved) < 10_000


def test_forked_roles_draw_different_numbers(tmp_path: Path, traces: Any) -> None:
    with LocalCluster(1, preload=("numpy",)) as cluster:
        roles = [
            Role(0, "trainer", k, tmp_path / f"{k}.log", entry="cluster_roles:draw")
            for k in range(3)
        ]
        drawn = [tuple(report.data["numbers"]) for report in run(cluster, roles).values()]
    assert len({numbers[0] for numbers in drawn}) == 3
    assert len({numbers[1] for numbers in drawn}) == 3


@pytest.mark.parametrize("preload", PRELOADS)
def test_a_role_ends_with_the_status_python_would_give(
    tmp_path: Path, traces: Any, preload: tuple[str, ...]
) -> None:
    log = tmp_path / "log"
    with LocalCluster(1, preload=preload) as cluster:
        role = Role(0, "trainer", 0, log, entry="cluster_roles:fail", kwargs={"status": 5})
        with pytest.raises(RoleError, match=r"exit status 5") as caught:
            run(cluster, [role])
        assert "this is what went wrong" in str(caught.value)
        with pytest.raises(RoleError, match=r"killed by SIGKILL"):
            run(cluster, [Role(0, "trainer", 0, log, entry="cluster_roles:die")])
        with pytest.raises(RoleError, match=r"exit status 1") as caught:
            run(cluster, [Role(0, "trainer", 0, log, entry="cluster_roles:no_such_function")])
        assert "no_such_function" in str(caught.value)


def test_what_a_job_leaves_on_a_host_is_cleaned(tmp_path: Path, traces: Any) -> None:
    with LocalCluster(1) as cluster:
        resting = traces.pids()
        run(cluster, [Role(0, "trainer", 0, tmp_path / "a", entry="cluster_roles:leave_child")])
        assert traces.pids() == resting
        look = Role(0, "trainer", 0, tmp_path / "b", entry="cluster_roles:look")
        assert run(cluster, [look])["trainer 0 on host0"].data["shared"] == ["mine"]


def test_an_import_that_fails_in_the_warm_process_is_named(traces: Any) -> None:
    named = r"cannot import 'no_such_module': ModuleNotFoundError"
    with (
        pytest.raises(ClusterError, match=named),
        LocalCluster(1, preload=("json", "no_such_module")) as cluster,
    ):
        cluster.wait_warm()


def test_a_module_that_leaves_a_thread_running_cannot_be_preloaded(
    tmp_path: Path, traces: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(300,), daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with (
        LocalCluster(1, preload=("threaded",)) as cluster,
        pytest.raises(ClusterError, match=r"importing 'threaded' .* left threads running"),
    ):
        cluster.wait_warm()


def test_the_death_of_the_warm_process_ends_the_job(tmp_path: Path, traces: Any) -> None:
    with LocalCluster(1, preload=("json",)) as cluster:
        cluster.wait_warm()

        def kill_warm(_: Role, report: Report) -> None:
            os.kill(_warm_pid(traces), signal.SIGKILL)

        start = time.monotonic()
        with pytest.raises(ClusterError, match=r"warm process .* was killed by SIGKILL"):
            Supervisor(cluster).run(
                [Role(0, "trainer", 0, tmp_path / "log", entry="cluster_roles:hold")],
                on_report=kill_warm,
            )
        assert time.monotonic() - start < 10


def test_a_deadline_works_across_hosts(tmp_path: Path, traces: Any) -> None:
    roles = [
        Role(k, "trainer", k, tmp_path / f"{k}.log", entry="cluster_roles:hold", kwargs=kwargs)
        for k, kwargs in enumerate([{"phase": "ready"}, {"phase": "other"}])
    ]
    with LocalCluster(2, preload=("json",)) as cluster:
        with pytest.raises(RoleError, match=r"no 'ready' within 2 s from trainer 1 on host1 \(10"):
            run(cluster, roles, deadlines=[Deadline("ready", 2, ("trainer",))])
        # the process that waits, the world, its hosts, the warm process; no role
        assert len(traces.pids()) == 5


def test_where_namespaces_are_refused_the_error_says_why_and_what_still_works(
    monkeypatch: pytest.MonkeyPatch, traces: Any
) -> None:
    """A sandbox that refuses new user namespaces: a limit of 0 in an outer one of our own."""
    script = (
        "import sys; from rudder.cluster import LocalCluster\n"
        "from rudder.cluster import namespaces as n\n"
        "import os\n"
        "uid, gid = os.getuid(), os.getgid()\n"
        "n.unshare(n.NEWUSER, 'user'); n.map_this_user(uid, gid)\n"
        "open('/proc/sys/user/max_user_namespaces', 'w').write('0')\n"
        "from rudder.errors import NamespaceError\n"
        "try:\n"
        "    with LocalCluster(1): print('started')\n"
        "except NamespaceError as error: print(error)\n"
        "from rudder.cluster.doctor import checks\n"
        "print([(c.name, c.ok) for c in checks() if c.name in ('namespaces', 'link shaping')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert "started" not in done.stdout
    assert "unshare user namespace" in done.stdout
    assert "user.max_user_namespaces is 0" in done.stdout
    assert "rudder replay" in done.stdout
    assert "[('namespaces', False), ('link shaping', None)]" in done.stdout
    assert issubclass(NamespaceError, ClusterError)


def test_the_cluster_can_be_used_from_another_thread(tmp_path: Path, traces: Any) -> None:
    with LocalCluster(2, preload=("json",)) as cluster:
        done = threading.Event()
        counts: list[int] = []

        def watch() -> None:
            while not done.is_set():
                counts.append(len(cluster.counters()))

        watcher = threading.Thread(target=watch)
        watcher.start()
        for _ in range(3):
            run(
                cluster,
                [
                    Role(k, "trainer", k, tmp_path / f"{k}.log", entry="cluster_roles:look")
                    for k in range(2)
                ],
            )
        done.set()
        watcher.join()
    assert set(counts) == {2}


def _warm_pid(traces: Any) -> int:
    """The parent of the only role: it lives in the world's pid namespace, its child in a host's."""
    role = max(traces.pids())
    stat = Path(f"/proc/{role}/stat").read_text().rpartition(")")[2].split()
    parent = int(stat[1])
    if os.readlink(f"/proc/{parent}/ns/pid") == os.readlink(f"/proc/{role}/ns/pid"):
        stat = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()
        return int(stat[1])
    return parent
