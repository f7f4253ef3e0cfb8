"""Where a job's hosts are: what ``--hosts`` means for parts, trainers and links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rudder.cluster import Host, LocalCluster
from rudder.cluster.ssh import SshCluster
from rudder.distdgl import place as module
from rudder.distdgl.environment import Environment
from rudder.distdgl.place import ClusterPlace
from rudder.errors import HostsFileError, UsageError
from rudder.scenario import Scenario


def place(tmp_path: Path, *lines: str) -> ClusterPlace:
    hosts = tmp_path / "hosts"
    hosts.write_text("\n".join(lines) + "\n")
    return ClusterPlace(str(hosts), tmp_path)


def test_emulated_hosts_take_every_scenario(tmp_path: Path) -> None:
    given: dict[str, Any] = {"parts": 3, "rate": 100.0}
    assert ClusterPlace().fill_in(given) == given
    ClusterPlace().check(Scenario.make(**given))
    made = ClusterPlace().make(3, 100.0)
    assert isinstance(made, LocalCluster)
    assert len(made.hosts) == 3


def test_a_hosts_file_says_how_many_parts_and_trainers(tmp_path: Path) -> None:
    two = place(tmp_path, "10.0.0.1 trainers=4 devices=1,0", "10.0.0.2 trainers=4")
    assert two.fill_in({"epochs": 2}) == {"parts": 2, "trainers": 4, "epochs": 2}
    two.check(Scenario.make(**two.fill_in({})))
    made = two.make(2, 0.0)
    assert isinstance(made, SshCluster)
    assert [str(host) for host in made.hosts] == ["host0 (10.0.0.1)", "host1 (10.0.0.2)"]
    assert made.hosts[0].devices == (1, 0)
    assert made.place(0, tmp_path / "runs" / "x") == tmp_path / "runs" / "x"


def test_a_host_may_keep_its_data_elsewhere(tmp_path: Path) -> None:
    made = place(tmp_path, "10.0.0.1 data=/scratch/ann python=/opt/bin/python").make(1, 0.0)
    assert made.place(0, tmp_path / "runs" / "x") == Path("/scratch/ann/runs/x")
    assert made.place(0, Path("/etc/hosts")) == Path("/etc/hosts")
    assert made.python(0) == "/opt/bin/python"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"parts": 4}, "means 2 hosts, but the scenario has 4 parts"),
        ({"trainers": 2}, "says trainers=1, but the scenario 2"),
        ({"rate": 100.0}, "the links of real hosts are what they are"),
        ({"rate_at": {1: 50.0}}, "the links of real hosts are what they are"),
    ],
)
def test_what_these_hosts_cannot_have_is_refused(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    two = place(tmp_path, "10.0.0.1 trainers=1", "10.0.0.2 trainers=1")
    with pytest.raises(UsageError, match=message):
        two.check(Scenario.make(**two.fill_in(fields)))


def test_trainers_that_differ_by_host_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HostsFileError, match="the lines say 2, nothing"):
        place(tmp_path, "10.0.0.1 trainers=2", "10.0.0.2").fill_in({})


def test_an_allocation_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "allocated_nodes", lambda: ["n1", "n2", "n3"])
    three = ClusterPlace("slurm", tmp_path)
    assert three.fill_in({"trainers": 2}) == {"parts": 3, "trainers": 2}
    three.check(Scenario.make(parts=3, trainers=2))


def test_processes_are_told_what_holds_on_their_own_host(tmp_path: Path) -> None:
    hosts = (
        Host(0, "host0", "10.0.0.1", "eth0", devices=(1, 0)),
        Host(1, "host1", "10.0.0.2", "ib0"),
    )
    environment = Environment(
        hosts, tmp_path / "g.json", 2, tmp_path / "ip.txt", ports=(20001, 20002), rendezvous=20003,
        place=lambda host, path: Path(f"/data{host}") / path.name,
    )  # fmt: skip
    environment.write_ip_config()
    assert environment.ip_config.read_text() == "10.0.0.1 20001\n10.0.0.2 20002\n"
    first, second = environment.trainer(0, 0), environment.trainer(0, 1)
    assert (first["CUDA_VISIBLE_DEVICES"], second["CUDA_VISIBLE_DEVICES"]) == ("1", "0")
    other = environment.trainer(1, 1)
    assert "CUDA_VISIBLE_DEVICES" not in other
    assert (other["RANK"], other["GLOO_SOCKET_IFNAME"]) == ("3", "ib0")
    assert (other["DGL_CONF_PATH"], other["DGL_IP_CONFIG"]) == ("/data1/g.json", "/data1/ip.txt")
    server = environment.server(1)
    for told in (other, server):
        assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("10.0.0.1", "20003")
