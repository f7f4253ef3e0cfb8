from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rudder.cluster import Host, LocalCluster, Role
from rudder.cluster.hosts import check_hosts, check_rate, describe_status
from rudder.cluster.support import explain, reasons
from rudder.errors import ClusterError, UsageError

LOG = Path("/nowhere.log")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "either argv or entry"),
        ({"argv": ("a",), "entry": "m:f"}, "either argv or entry"),
        ({"entry": "module"}, "module:function"),
        ({"argv": ("a",), "kwargs": {"x": 1}}, "kwargs belong to an entry"),
        ({"entry": "m:f", "kwargs": {"x": object()}}, "kwargs are not JSON"),
        ({"argv": ("a",), "cwd": Path("here")}, "is not absolute"),
    ],
)
def test_a_role_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match="trainer 2 on host1.*" + words):
        Role(1, "trainer", 2, LOG, **wrong)


def test_kwargs_too_large_for_a_command_line_are_refused() -> None:
    role = Role(0, "trainer", 0, LOG, entry="m:f", kwargs={"x": "y" * 200_000})
    with pytest.raises(UsageError, match="put them in a file"):
        role.command()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"hosts": 0}, "0 hosts"),
        ({"hosts": -1}, "-1 hosts"),
        ({"hosts": 300}, "do not fit"),
        ({"hosts": 2, "rate": -1.0}, "-1.0 Mbit/s is not possible"),
        ({"hosts": 2, "rate": float("nan")}, "not possible"),
        ({"hosts": 2, "rate": 0.01}, "at least 0.1"),
        ({"hosts": 2, "subnet": "10.0.0.0/99"}, "is not an IPv4 network"),
        ({"hosts": 2, "addresses": ["10.91.0.1", "10.91.0.1"]}, "both called 10.91.0.1"),
        ({"hosts": 2, "addresses": ["10.91.0.1"]}, "2 hosts but 1 addresses"),
        ({"hosts": 1, "addresses": ["10.92.0.1"]}, "not in the subnet"),
        ({"hosts": 1, "addresses": ["host7"]}, "host7"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_before_anything_starts(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        LocalCluster(**arguments)


def test_two_hosts_with_one_address_are_named() -> None:
    hosts = [Host(0, "a", "10.0.0.1"), Host(1, "b", "10.0.0.2"), Host(2, "c", "10.0.0.1")]
    with pytest.raises(UsageError, match=r"host 0 \(a\) and host 2 \(c\) .* 10\.0\.0\.1"):
        check_hosts(hosts)


def test_a_rate_is_given_back_as_a_float() -> None:
    assert check_rate(0) == 0.0
    assert check_rate(100) == 100.0


def test_a_cluster_that_is_not_running_says_so() -> None:
    with pytest.raises(ClusterError, match="not running"):
        LocalCluster(1).counters()


def test_statuses_in_words() -> None:
    assert describe_status(3) == "ended with exit status 3"
    assert describe_status(-9) == "was killed by SIGKILL"


def test_known_causes_are_read_from_the_machine(tmp_path: Path) -> None:
    assert reasons(tmp_path) == []
    assert "no known cause" in explain("unshare", tmp_path)
    switch = tmp_path / "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
    switch.parent.mkdir(parents=True)
    switch.write_text("1\n")
    assert "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" in explain("u", tmp_path)
    (tmp_path / ".dockerenv").touch()
    text = explain("mount proc on /proc: Operation not permitted", tmp_path)
    assert "mount proc" in text
    assert "seccomp=unconfined" in text
    assert "rudder replay" in text
