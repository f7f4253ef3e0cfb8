"""The same training on emulated hosts, over ssh and in Slurm: it comes to the same."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rudder.distdgl import examples
from rudder.distdgl.engine import DistDGLEngine
from rudder.engine import RunOptions
from rudder.home import Home
from rudder.scenario import Scenario
from rudder.spec import Spec

pytestmark = [pytest.mark.cluster, pytest.mark.full]

GRAPH, PARTS, EPOCHS = "sbm:nodes=6000", 4, 3
SECONDS = 900.0
TRAIN = ("train", GRAPH, "--epochs", str(EPOCHS), "--no-track", "--json", "--quiet")
SCRIPT = Path(examples.__file__).with_name("plain.py")
LAUNCH = ("launch", GRAPH, str(SCRIPT), "--json", "--quiet")
FOR_SCRIPT = (
    "--", "--ip_config", "{ip_config}", "--part_config", "{part_config}",
    "--graph_name", "{graph_name}", "--epochs", "2",
)  # fmt: skip


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Summary of a run on emulated hosts."""
    home = Home.resolve(tmp_path_factory.mktemp("local"))
    scenario = Scenario.make(graph=GRAPH, parts=PARTS, epochs=EPOCHS)
    options = RunOptions(home, home.runs / "local")
    return DistDGLEngine().run(scenario, Spec.parse("always"), options).summary


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory, sshd: Any) -> Iterator[Any]:
    with sshd.sshd_hosts(tmp_path_factory.mktemp("ssh"), PARTS) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def partition_of_slurm(tmp_path_factory: pytest.TempPathFactory, slurm: Any) -> Iterator[Any]:
    with slurm.slurm_hosts(tmp_path_factory.mktemp("slurm"), PARTS) as hosts:
        yield hosts


def told(run: Any) -> dict[str, Any]:
    """The JSON object among what a run has said."""
    assert run.wait(SECONDS) == 0, run.text
    found: dict[str, Any] = json.loads(run.text[run.text.index("{\n") : run.text.rindex("}") + 1])
    return found


def over_ssh(four: Any, *lines: str) -> tuple[str, ...]:
    hosts = four.hosts_file(lines or None, name=f"hosts-{len(lines)}.txt")
    return ("--hosts", hosts, "--ssh-config", four.config, "--home", four.folder / "home")


def assert_same(found: Mapping[str, Any], local: Mapping[str, Any]) -> None:
    """What is trained is the same to the last bit; what is fetched depends on when answers come."""
    for key in ("test_metric", "remote_sampled"):
        assert found[key] == local[key], key
    for key in ("fetched", "bytes_fetched"):
        assert found[key] == pytest.approx(local[key], rel=0.02), key


def test_training_over_ssh_comes_to_the_same(four: Any, local: Mapping[str, Any]) -> None:
    assert_same(told(four.rudder(*TRAIN, *over_ssh(four))), local)


def test_a_run_over_ssh_goes_on_after_a_trainer_was_killed(
    four: Any, local: Mapping[str, Any]
) -> None:
    """The hosts share no folder: checkpoints travel to the launcher's and back."""
    runs = four.folder / "home" / "runs"
    before = set(runs.glob("*"))
    run = four.rudder(*TRAIN, *over_ssh(four), "--restarts", "1")

    def kept(said: str) -> bool:
        new = set(runs.glob("*")) - before
        return any(len(list(each.glob("checkpoints/epoch=0/*"))) == 2 * PARTS for each in new)

    run.wait_for(kept, SECONDS)
    (run_dir,) = set(runs.glob("*")) - before
    journal = f"{run_dir.name}/ranks/decisions-rank=2.jsonl"
    (trainer,) = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                  if any(name.endswith(journal) for name in _open_files(pid))]  # fmt: skip
    os.kill(trainer, signal.SIGKILL)
    summary = told(run)
    assert summary["restarts"] == 1
    assert_same(summary, local)
    started = (run_dir / "starts.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] in (0, 1) for line in started] == [True]


def _open_files(pid: int) -> list[str]:
    try:
        return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def test_training_in_slurm_comes_to_the_same(
    partition_of_slurm: Any, local: Mapping[str, Any]
) -> None:
    home = partition_of_slurm.folder / "home"
    run = partition_of_slurm.rudder(*TRAIN, "--hosts", "slurm", "--home", home, nodes=PARTS)
    assert_same(told(run), local)


def test_somebody_elses_script_runs_on_all_three(
    four: Any, partition_of_slurm: Any, cli: Any, tmp_path: Path
) -> None:
    done = cli(*LAUNCH, *FOR_SCRIPT, timeout=SECONDS)
    assert done.code == 0, done.err
    shown = [json.loads(done.out)]
    home = partition_of_slurm.folder / "home"
    shown.append(told(four.rudder(*LAUNCH, *over_ssh(four), *FOR_SCRIPT)))
    options = ("--hosts", "slurm", "--home", home)
    shown.append(told(partition_of_slurm.rudder(*LAUNCH, *options, *FOR_SCRIPT, nodes=PARTS)))
    for each in shown:
        for rank in range(PARTS):
            log = (Path(each["logs"]) / f"script-{rank}.log").read_text().splitlines()
            first, second = (json.loads(line) for line in log if line.startswith('{"epoch"'))
            assert second["loss"] < first["loss"]
    print("bytes sent:", [each["bytes_sent"] for each in shown])
    for each in shown[1:]:
        assert each["bytes_sent"] == pytest.approx(shown[0]["bytes_sent"], rel=0.1)


def test_16_trainers_on_4_hosts(four: Any) -> None:
    lines = [four.line(host, "trainers=4", "isolated=false") for host in range(PARTS)]
    shown = told(four.rudder(*TRAIN, *over_ssh(four, *lines)))
    assert shown["hits"] + shown["misses"] == shown["remote_sampled"] > 0
    saved = four.folder / "home" / "runs" / shown["run_id"]
    assert len(list(saved.glob("ranks/rank=*.parquet"))) == 16


def test_two_runs_at_once_on_the_same_hosts(four: Any) -> None:
    lines = [four.line(host) for host in range(2)]
    runs = [four.rudder(*TRAIN, *over_ssh(four, *lines)) for _ in range(2)]
    for shown in map(told, runs):
        assert shown["parts"] == 2
        assert shown["hits"] + shown["misses"] == shown["remote_sampled"] > 0
