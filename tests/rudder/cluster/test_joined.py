"""Hosts whose processes somebody else has started, as torchrun does."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rudder.cluster import LocalCluster, joined
from rudder.cluster.joined import JoinedCluster, Member
from rudder.errors import ClusterError, HostsFileError, UsageError

GIVEN = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def member(rank: int = 0, **changes: str) -> Member:
    return Member.read({**GIVEN, "RANK": str(rank), **changes})


def test_the_variables_name_the_process_and_its_job() -> None:
    first, second = member(0), member(1)
    assert (second.rank, second.world, second.master) == (1, 3, "127.0.0.1")
    assert first.name == second.name
    assert member(1, MASTER_PORT="29501").name != first.name
    assert member(1, TORCHELASTIC_RUN_ID="7").name != first.name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"MASTER_ADDR": ""}, "MASTER_ADDR must be set, as torchrun does"),
        ({"LOCAL_WORLD_SIZE": "4"}, "wants one process per host"),
        ({"WORLD_SIZE": "many"}, "must be whole numbers"),
        ({"RANK": "3"}, r"RANK 3 does not lie in 0..2"),
    ],
)
def test_variables_that_make_no_sense(changes: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Member.read({**GIVEN, **changes})


class Gathering:
    """Rank 0 waits in a thread of its own."""

    def __init__(self, data: Path, seconds: float) -> None:
        self.data = data
        self.joined: dict[int, socket.socket] = {}
        self.error: ClusterError | None = None
        self._thread = threading.Thread(target=self._run, args=(seconds,))
        self._thread.start()

    def _run(self, seconds: float) -> None:
        try:
            self.joined = joined._gather(member(0), "127.0.0.1", self.data, seconds)
        except ClusterError as error:
            self.error = error

    def end(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture
def connect(tmp_path: Path) -> Callable[..., socket.socket]:
    def connect(rank: int, seconds: float = 20.0, **changes: str) -> socket.socket:
        return joined._connect(member(rank, **changes), tmp_path, seconds)

    return connect


def test_processes_that_share_a_folder_find_each_other(
    tmp_path: Path, connect: Callable[..., socket.socket]
) -> None:
    gathering = Gathering(tmp_path, 30)
    links = {rank: connect(rank) for rank in (2, 1)}
    gathering.end()
    assert set(gathering.joined) == {1, 2}
    for rank, link in gathering.joined.items():
        link.sendall(b"%d" % rank)
        assert links[rank].recv(10) == b"%d" % rank
        link.close()
        links[rank].close()
    assert list(tmp_path.iterdir()) == []  # the secret has gone


def test_a_rank_that_does_not_join_is_named_and_strangers_are_not_taken_for_it(
    tmp_path: Path, connect: Callable[..., socket.socket]
) -> None:
    gathering = Gathering(tmp_path, 4)
    link = connect(2)
    [invitation] = list(tmp_path.glob(".join-*"))
    assert invitation.stat().st_mode & 0o777 == 0o600
    told = json.loads(invitation.read_text())
    where = (told["address"], told["port"])
    with socket.create_connection(where) as stranger, pytest.raises(ConnectionError):
        joined._prove(stranger, 1, b"a guess")
    with socket.create_connection(where) as stranger:
        stranger.sendall(b"\0\0\0\1" + bytes(32) + bytes(32))
        while stranger.recv(100):  # it is answered, and then hung up on
            pass
    gathering.end()
    assert "rank 1 of 3 has not joined within 4 s" in str(gathering.error)
    link.close()


def test_without_a_launcher_a_process_says_where_it_has_looked(
    tmp_path: Path, connect: Callable[..., socket.socket]
) -> None:
    with pytest.raises(ClusterError, match=r"rank 1 found no rank 0 within 0 s: .*share"):
        connect(1, seconds=0.3)


def test_a_public_master_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostsFileError, match=r"MASTER_ADDR: 93.184.216.34 is a public"):
        JoinedCluster(member(0, MASTER_ADDR="93.184.216.34"), tmp_path)


def command_on(hosts: LocalCluster, starter: Any, home: Path, *words: str) -> list[Any]:
    """The same command as the one process of every host."""
    common = {"WORLD_SIZE": str(len(hosts.hosts)), "MASTER_ADDR": hosts.hosts[0].address}
    return [
        starter.start(
            host.index, (*words, "--home", str(home)), {**common, "RANK": str(host.index)}
        )
        for host in hosts.hosts
    ]


@pytest.mark.cluster
def test_the_hosts_that_joined_are_looked_at(tmp_path: Path, emulated: Any) -> None:
    with LocalCluster(2) as hosts:
        words = (*emulated.RUDDER, "doctor", "--hosts", "env", "--json")
        launcher, agent = command_on(
            hosts, emulated.Starter(hosts, tmp_path), tmp_path / "home", *words
        )
        assert launcher.wait(180) == 0, launcher.text
        assert agent.wait(60) == 0, agent.text
        rows = json.loads(launcher.text)
        assert [row["name"] for row in rows] == [str(host) for host in hosts.hosts]


@pytest.mark.cluster
@pytest.mark.full
def test_training_on_hosts_that_joined(tmp_path: Path, emulated: Any) -> None:
    with LocalCluster(2) as hosts:
        words = ("train", "sbm:nodes=2000", "--epochs", "1", "--no-track", "--json", "--quiet")
        launcher, agent = command_on(
            hosts, emulated.Starter(hosts, tmp_path), tmp_path / "home",
            *emulated.RUDDER, *words, "--hosts", "env",
        )  # fmt: skip
        assert launcher.wait(900) == 0, launcher.text
        assert agent.wait(60) == 0, agent.text
        shown = json.loads(launcher.text[launcher.text.index("{") : launcher.text.rindex("}") + 1])
        assert shown["parts"] == 2
        assert shown["hits"] + shown["misses"] == shown["remote_sampled"] > 0
