"""Where a job's hosts are: what ``--hosts`` means for parts, trainers and links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rudder.cluster import LocalCluster
from rudder.cluster.ssh import SshCluster
from rudder.distdgl import place as module
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
