"""Hosts over ssh: a real sshd in every emulated host, a launcher on one more."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

DRIVER = Path(__file__).with_name("ssh_driver.py")
IN_TIME = 30.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, sshd: Any) -> Iterator[Any]:
    with sshd.sshd_hosts(tmp_path_factory.mktemp("ssh"), 2) as hosts:
        yield hosts


def drive(
    pair: Any, name: str, script: str, traces: Any, hosts: Path, deadlines: tuple[float, ...] = ()
) -> Any:
    """Start the driver on the launcher's host; its roles carry the test's mark."""
    task = {
        "folder": str(pair.folder), "hosts": str(hosts), "config": str(pair.config),
        "script": script, "name": name, "env": {traces.VARIABLE: traces.mark},
        "deadlines": deadlines,
    }  # fmt: skip
    command = (sys.executable, "-I", str(DRIVER), json.dumps(task))
    return pair.starter.start(pair.count, command, {traces.VARIABLE: ""})


def test_train_runs_on_hosts_that_share_nothing(pair: Any) -> None:
    home = pair.folder / "home"
    home.mkdir()
    run = pair.rudder(
        "train", "sbm:nodes=2000", "--hosts", str(pair.hosts_file()), "--ssh-config",
        str(pair.config), "--home", str(home), "--no-track", "--epochs", "1", "--json", "--quiet",
        "--record", home / "traces" / "new",
    )  # fmt: skip
    assert run.wait(600) == 0, run.text
    shown = json.loads(run.text[run.text.index("{") :])
    assert shown["parts"] == 2
    assert shown["hits"] + shown["misses"] == shown["remote_sampled"] > 0
    assert 0 < shown["test_metric"] <= 1
    for host in range(2):
        folder = next(pair.data(host).glob("partitions/*"))
        assert (folder / f"part{host}" / "graph.dgl").is_file()
        assert not (folder / f"part{1 - host}").exists()
        assert not list(pair.data(host).glob("runs/*/ranks/*"))  # they have come back
        assert len(list((home / "traces" / "new.trace" / f"rank={host}").glob("*.parquet"))) == 1
    saved = json.loads(next(home.glob("runs/*/run.json")).read_text())
    moved = saved["details"]["host_counters"]
    assert all(counter["tx_bytes"] > shown["bytes_fetched"] / 4 for counter in moved)


def test_every_problem_of_every_host_is_listed_before_anything_starts(pair: Any) -> None:
    bare = sys._base_executable  # type: ignore[attr-defined]  # has neither DGL nor Rudder
    first, second = (host.address for host in pair.cluster.hosts[:2])
    lines = [
        f"ann@{first}:{pair.port} python={bare}",
        f"ann@{second}:{pair.port} python=/no/python",
        f"ann@{second.rpartition('.')[0]}.77:{pair.port} ssh={second}",
        f"ann@{second.rpartition('.')[0]}.78:1 ssh={first}",
    ]
    hosts = pair.hosts_file(lines, "wrong.txt")
    home = pair.folder / "home-of-doctor"
    options = ["--hosts", str(hosts), "--ssh-config", str(pair.config), "--home", str(home)]
    run = pair.rudder("doctor", "--json", *options)
    assert run.wait(180) == 1
    rows = json.loads(run.text[run.text.index("[") :])
    wrong = {row["name"].partition(" ")[0]: [] for row in rows}  # type: ignore[var-annotated]
    for row in rows:
        if row["ok"] is False:
            wrong[row["name"].partition(" ")[0]].append(row["found"])
            assert row["advice"]
    assert "no interpreter /no/python there" in " ".join(wrong["host1"])
    assert "nothing listens at its ssh port" in " ".join(wrong["host3"])
    assert "no interface there has the address" in " ".join(wrong["host2"])
    for missing in ("dgl is missing", "torch is missing", f"{bare} has no Rudder"):
        assert missing in " ".join(wrong["host0"])
    run = pair.rudder("train", "sbm:nodes=2000", "--no-track", *options)
    assert run.wait(180) == 1
    for host in range(4):
        assert f"host{host} (" in run.text
    assert "nothing was started" in run.text


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=pytest.mark.full, id="ctrl-c"),
     pytest.param(signal.SIGKILL, marks=pytest.mark.full, id="killed")],
)  # fmt: skip
def test_the_end_of_the_launcher_is_the_end_of_everything(
    pair: Any, traces: Any, number: int
) -> None:
    script = "sleep 300 & (setsid sleep 300 &) ; sleep 300"
    run = drive(pair, f"end-{number}", script, traces, pair.hosts_file())
    run.wait_for(lambda said: len(traces.pids()) >= 6, 60)
    run.process.send_signal(number)
    run.wait(IN_TIME)
    traces.assert_gone(seconds=IN_TIME)


def test_a_lost_connection_ends_the_job_and_names_the_host(pair: Any, traces: Any) -> None:
    run = drive(pair, "lost", "sleep 300", traces, pair.hosts_file())
    run.wait_for(lambda said: len(traces.pids()) >= 2, 60)
    address = pair.cluster.hosts[1].address
    clients = clients_of(pair, address)
    assert clients
    for pid in clients:
        os.kill(pid, signal.SIGKILL)
    assert run.wait(IN_TIME) == 1
    assert f"host1 ({address}): the connection ended" in run.text
    traces.assert_gone(seconds=IN_TIME)


@pytest.mark.full
def test_a_role_that_never_reports_is_named(pair: Any, traces: Any) -> None:
    report = r"""printf '\036@rudder 1.0 1/1 {"phase": "ready", "data": {}}\036\n'"""
    script = f'test "$(hostname)" = host1 || {report}; sleep 300'
    run = drive(pair, "mute", script, traces, pair.hosts_file(), deadlines=(3.0,))
    assert run.wait(180) == 1
    address = pair.cluster.hosts[1].address
    assert f"no 'ready' within 3 s from holder 1 on host1 ({address})." in run.text
    traces.assert_gone(seconds=IN_TIME)


@pytest.mark.full
def test_two_jobs_at_once_do_not_meet(pair: Any, traces: Any) -> None:
    hosts = pair.hosts_file()
    script = "test ! -e /dev/shm/mine && echo {0} >/dev/shm/mine && sleep 3 && cat /dev/shm/mine"
    runs = [drive(pair, name, script.format(name), traces, hosts) for name in ("one", "other")]
    assert [run.wait(180) for run in runs] == [0, 0]
    for name in ("one", "other"):
        for host in range(2):
            assert (pair.folder / f"{name}-{host}.log").read_text() == f"{name}\n"
    assert runs[0].text.splitlines()[-1] != runs[1].text.splitlines()[-1]  # ports of their own


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def clients_of(pair: Any, address: str) -> list[int]:
    """The ssh clients that a launcher of these hosts has started towards one of them."""
    pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    needles = ("ssh ", str(pair.config), f" {address} ")
    return [pid for pid in pids if all(needle in command_of(pid) for needle in needles)]
