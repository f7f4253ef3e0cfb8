"""Hosts that are kept between jobs, and what the launcher makes of its trainers' reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rudder import errors
from rudder.cluster.report import Report
from rudder.cluster.roles import Role
from rudder.distdgl import hosting
from rudder.distdgl.engine import check_training_nodes, silence_s
from rudder.distdgl.job import Job
from rudder.distdgl.watching import Watch
from rudder.engine import RunOptions
from rudder.errors import ClusterError, ControllerError, PartitionError, RoleError, ScenarioError
from rudder.home import Home
from rudder.partition import Partition
from rudder.scenario import Scenario
from rudder.spec import Spec


class Cluster:
    """Stands for a cluster; the class counts them, and fails where it is told to."""

    made = 0
    fail_to_start = False
    fail_to_shape = False

    def __init__(self, hosts: int, **options: Any) -> None:
        self.hosts = range(hosts)
        Cluster.made += 1

    def __enter__(self) -> Cluster:
        if self.fail_to_start:
            raise ClusterError("no network today")
        return self

    def __exit__(self, *error: object) -> None:
        self.ended = True

    def shape(self, rate: float) -> None:
        if self.fail_to_shape:
            raise ClusterError("the hosts are gone")


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> hosting.Hosts:
    monkeypatch.setattr(hosting, "LocalCluster", Cluster)
    for name in ("made", "fail_to_start", "fail_to_shape"):
        monkeypatch.setattr(Cluster, name, 0)
    kept = hosting.Hosts()
    kept.keep = True
    return kept


def use(hosts: hosting.Hosts, parts: int = 2) -> Any:
    with hosts(parts, 0.0) as cluster:
        return cluster


def test_kept_hosts_serve_the_next_job_of_as_many_parts(hosts: hosting.Hosts) -> None:
    first = use(hosts)
    assert use(hosts) is first
    assert use(hosts, parts=3) is not first
    assert first.ended


def test_hosts_that_did_not_start_are_not_kept(hosts: hosting.Hosts) -> None:
    Cluster.fail_to_start = True
    with pytest.raises(ClusterError, match="no network"):
        use(hosts)
    Cluster.fail_to_start = False
    use(hosts)
    assert Cluster.made == 2


def test_hosts_that_died_in_between_are_not_kept(hosts: hosting.Hosts) -> None:
    use(hosts)
    Cluster.fail_to_shape = True
    with pytest.raises(ClusterError, match="gone"):
        use(hosts)
    use(hosts)
    assert Cluster.made == 2


class Gathered:
    """Stands for what brings checkpoints here."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def kept(self, epoch: int) -> None:
        self.epochs.append(epoch)


def watch(
    tmp_path: Path, told: list[tuple[str, float]], gathered: Any = None, **fields: Any
) -> Watch:
    options = RunOptions(
        Home(tmp_path), tmp_path, progress=lambda phase, share: told.append((phase, share))
    )
    gathered = gathered or Gathered()
    return Watch(Scenario.make(**fields), options, lambda rate: None, gathered)


def trainer(rank: int, tmp_path: Path) -> Role:
    return Role(rank, "trainer", rank, tmp_path / f"trainer-{rank}.log", argv=("true",))


def test_progress_is_that_of_the_slowest_trainer(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    seen = watch(tmp_path, told, parts=2, epochs=2)
    first, second = trainer(0, tmp_path), trainer(1, tmp_path)
    for role in (first, second):
        seen.report(role, Report("ready", {"minibatches": [10, 10], "surplus": 0}))
    seen.report(first, Report("step", {"step": 8}))
    assert told == [("start", 0.5), ("start", 1.0)]
    seen.report(second, Report("step", {"step": 5}))
    seen.report(first, epoch(0))
    seen.report(second, epoch(1))
    assert told[2:] == [("train", 0.25), ("train", 0.25), ("train", 0.5)]


def epoch(number: int, no_checkpoint: str | None = None) -> Report:
    return Report("epoch", {"epoch": number, "seconds": 1.0, "no_checkpoint": no_checkpoint,
                            "checkpoint_bytes": 1000})  # fmt: skip


def test_a_checkpoint_counts_when_every_trainer_has_its_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gathered = Gathered()
    seen = watch(tmp_path, [], gathered, parts=2, epochs=3)
    first, second = trainer(0, tmp_path), trainer(1, tmp_path)
    seen.report(first, epoch(0))
    assert gathered.epochs == []
    seen.report(second, epoch(0))
    assert gathered.epochs == [0]
    seen.report(first, epoch(1, "No space left on device"))
    seen.report(second, epoch(1, "another rank could not write its part"))
    assert gathered.epochs == [0]
    (told,) = caplog.messages  # once an epoch
    assert told == (
        "epoch 1 has no checkpoint (trainer 0 on host0: No space left on device); training goes on"
    )


def test_what_a_trainer_says_of_its_failure_is_what_is_told(tmp_path: Path) -> None:
    seen = watch(tmp_path, [])
    ended = RoleError("trainer 1 ended with exit status 1")
    assert seen.cause_of(ended) is ended
    seen.report(
        trainer(1, tmp_path), Report("failed", {"error": "ControllerError", "message": "no model"})
    )
    seen.report(
        trainer(0, tmp_path), Report("failed", {"error": "ControllerError", "message": "late"})
    )
    cause = seen.cause_of(ended)
    assert type(cause) is ControllerError
    assert "trainer 1 on host1: no model" in str(cause)
    assert "trainer-1.log" in str(cause)


def test_an_error_class_of_a_plug_in_stays_the_roles_failure(tmp_path: Path) -> None:
    assert not hasattr(errors, "TheirError")
    seen = watch(tmp_path, [])
    seen.report(
        trainer(0, tmp_path), Report("failed", {"error": "TheirError", "message": "theirs"})
    )
    ended = RoleError("trainer 0 ended with exit status 1")
    assert seen.cause_of(ended) is ended


def test_in_sync_mode_a_trainer_may_be_silent_while_a_pull_waits(tmp_path: Path) -> None:
    def silence(**fields: Any) -> float:
        controller = Spec.parse("always:deadline_s=500")
        return silence_s(Job(Scenario.make(**fields), controller, tmp_path, tmp_path))

    assert silence(mode="sync") == silence(mode="async") + 500


def partition_of(folder: Path, **counts: tuple[int, int]) -> Partition:
    facts: dict[str, Any] = {
        "part_nodes": (5, 5), "part_edges": (6, 6), "halo_nodes": (1, 1), "part_train": (3, 3),
        **counts,
    }  # fmt: skip
    return Partition(
        folder=folder, graph_name="g", graph="g", graph_digest="", digest="", method="metis",
        seed=0, nodes=10, edges=12, classes=2, multilabel=False, feature_width=1, edge_cut=0.0,
        balance=1.0, beyond_halo=0.0, **facts,
    )  # fmt: skip


def test_a_part_without_edges_is_refused_before_dgl_fails_on_it(tmp_path: Path) -> None:
    hosting.check_served(partition_of(tmp_path))
    with pytest.raises(PartitionError, match="part 1 of 2 of graph 'g' has no edge"):
        hosting.check_served(partition_of(tmp_path, part_edges=(12, 0)))


def test_every_trainer_needs_a_training_node(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, part_train=(3, 0))
    check_training_nodes(Scenario.make(parts=2), partition)  # split evenly, whatever the part
    with pytest.raises(ScenarioError, match="3 training nodes for 4 trainers"):
        check_training_nodes(Scenario.make(parts=2, trainers=2), partition)
