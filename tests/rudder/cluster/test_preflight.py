"""What is found wrong with hosts, from what their agents tell."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from rudder.cluster.hosts import Host
from rudder.cluster.preflight import (
    Facts,
    Problem,
    clock_offset,
    host_problems,
    room_problems,
    together_problems,
    told,
    unreachable,
)
from rudder.cluster.survey import survey


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """This machine, as the launcher looks at it."""
    values = survey("", str(tmp_path_factory.mktemp("data") / "not" / "there"))
    values["shared_memory_free"] = 1 << 33
    values["arrays"] = []
    return Facts(Host(-1, "this machine", ""), values, None, 0.0)


def there(here: Facts, index: int = 1, offset: float = 0.0, **changes: Any) -> Facts:
    """Another host that is as this machine, but for some facts."""
    values = copy.deepcopy(here.values)
    values |= {"interface": "ib0", "machine": f"boot-{index}/1"}
    for name, value in changes.items():
        values[name] = {**values[name], **value} if isinstance(value, dict) else value
    return Facts(Host(index, f"host{index}", f"10.0.0.{index + 1}"), values, None, offset)


def test_a_host_like_this_one_has_no_problem(here: Facts) -> None:
    assert host_problems(here, there(here)) == []
    assert together_problems([there(here, 0), there(here, 1)]) == []
    assert not here.values["data"]["exists"]
    assert here.values["data"]["writable"]


@pytest.mark.parametrize(
    ("changes", "what", "remedy"),
    [
        ({"python": "3.9.1"}, "is Python 3.9, here it is 3.", "python=PATH"),
        ({"versions": {"dgl": None}}, "dgl is missing, here it is", "-m pip install dgl=="),
        ({"versions": {"torch": "2.4.0"}}, "torch 2.4.0, here it is", "-m pip install torch=="),
        ({"source": None}, "has no Rudder", "-m pip install rudder-gnn=="),
        ({"source": "0" * 64}, "other files than the one here", "same wheel or checkout"),
        ({"interface": None, "addresses": {"eth0": "10.0.9.9"}}, "10.0.9.9 (eth0)", "ssh=NAME"),
        ({"data": {"foreign": True, "owner": 7}}, "belongs to uid 7, not to you", "data=PATH"),
        ({"data": {"writable": False, "nearest": "/opt"}}, "/opt is not writable", "data=PATH"),
        ({"home_writable": False}, "HOME is not writable", "make a HOME"),
        ({"shared_memory_free": 64 << 20}, "/dev/shm has 67.1 MB free", "--shm-size"),
        ({"offset": -90.0}, "its clock is -90.0 s from", "set-ntp"),
    ],
)
def test_each_problem_is_told_with_what_mends_it(
    here: Facts, changes: dict[str, Any], what: str, remedy: str
) -> None:
    [found] = host_problems(here, there(here, **changes))
    assert found.host == "host1 (10.0.0.2)"
    assert what in found.what
    assert remedy in found.remedy


def test_all_problems_of_all_hosts_come_at_once(here: Facts) -> None:
    first = there(here, 0, versions={"dgl": None, "torch": None}, offset=9.0)
    second = there(here, 1, source=None)
    found = [*host_problems(here, first), *host_problems(here, second)]
    message = told(found, hosts=3)
    assert message.startswith("4 problems on 2 of 3 hosts; nothing was started.\n")
    assert message.count("mend it: ") == 4
    assert told([Problem("host9", "is odd", "even it")], 1).startswith("1 problem on 1 of 1 hosts")


def test_one_machine_under_two_addresses(here: Facts) -> None:
    twins = [there(here, 0, machine="same"), there(here, 1, machine="same")]
    [found] = together_problems(twins)
    assert found.host == "host1 (10.0.0.2)"
    assert "the same machine as host0 (10.0.0.1)" in found.what


def test_a_slow_answer_is_no_wrong_clock() -> None:
    assert clock_offset(104.0, 100.0, 109.0) == 0.0
    assert clock_offset(97.0, 100.0, 109.0) == -3.0
    assert clock_offset(112.5, 100.0, 109.0) == 3.5


def test_arrays_of_another_job_matter_where_roles_are_not_apart(here: Facts) -> None:
    facts = there(here, arrays=["node~_N~feat-kvdata-"])
    assert host_problems(here, facts) == []
    [found] = host_problems(here, Facts(facts.host, facts.values, "unshare: refused", 0.0))
    assert "another DistDGL job runs there, or has left 1 arrays" in found.what
    assert "unshare: refused" in found.what


def test_room_on_disk_and_in_memory(here: Facts) -> None:
    facts = there(here, data={"free": 10**9}, shared_memory_free=10**9, memory_free=10**10)
    assert room_problems(facts.host, facts, on_disk=8 * 10**8, in_memory=8 * 10**8) == []
    disk, memory = room_problems(facts.host, facts, on_disk=10**9, in_memory=2 * 10**9)
    assert "has 1.0 GB free, 1.0 GB are to come" in disk.what
    assert "/dev/shm has 1.0 GB and memory 10.0 GB free; its part takes 2.0 GB" in memory.what


class Lost:
    """Stands for a connection that did not come about."""

    def __init__(self, said: str, status: int) -> None:
        self.said, self.status, self.failure = said, status, f"host1: ended; it said: {said}"


@pytest.mark.parametrize(
    ("said", "status", "what", "remedy"),
    [
        ("ann@h: Permission denied (publickey).", 255, "lets nobody in without", "ssh-copy-id"),
        ("Host key verification failed.", 255, "its host key is not known", "once, by hand"),
        ("ssh: connect to host h port 22: Connection refused", 255, "nothing listens", "sshd"),
        ("ssh: Could not resolve hostname h: Name", 255, "its name is not known", "hosts file"),
        ("ssh: connect to host h port 22: Connection timed out", 255, "does not answer", "ssh h"),
        ("sh: 1: /opt/python: not found", 127, "no interpreter /opt/python", "ls -l /opt/python"),
        ("kex_exchange_identification: banner", 255, "it said: kex_exchange", "ssh h"),
    ],
)
def test_why_a_host_cannot_be_reached(said: str, status: int, what: str, remedy: str) -> None:
    link: Any = Lost(said, status)
    found = unreachable(Host(1, "host1", "10.0.0.2"), link, "ssh h", "/opt/python")
    assert what in found.what
    assert remedy in found.remedy


def test_a_foreign_data_directory_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not survey("", str(tmp_path))["data"]["foreign"]
    monkeypatch.setattr("os.getuid", lambda: tmp_path.stat().st_uid + 1)
    data = survey("", str(tmp_path))["data"]
    assert data["foreign"]
    assert data["owner"] == tmp_path.stat().st_uid
