"""Hosts of a real Slurm, a slurmd in every emulated host."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.full]

COMMON = ("sbm:nodes=2000", "--no-track", "--epochs", "1", "--json", "--quiet")
IN_TIME = 30.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, slurm: Any) -> Iterator[Any]:
    with slurm.slurm_hosts(tmp_path_factory.mktemp("slurm"), 2) as made:
        yield made


def test_train_runs_in_an_allocation(hosts: Any) -> None:
    home = hosts.folder / "home"
    run = hosts.rudder("train", *COMMON, "--hosts", "slurm", "--home", home, nodes=2)
    assert run.wait(900) == 0, run.text
    shown = json.loads(run.text[run.text.index("{") : run.text.rindex("}") + 1])
    assert shown["parts"] == 2
    assert shown["hits"] + shown["misses"] == shown["remote_sampled"] > 0
    assert 0 < shown["test_metric"] <= 1


def test_a_batch_script_that_rudder_has_written_runs(hosts: Any) -> None:
    home = hosts.folder / "home-of-batch"
    options = ("--parts", "2", "--submit", "--sbatch", "time=00:10:00", "--home", home)
    run = hosts.rudder("train", *COMMON, *options)
    assert run.wait(180) == 0, run.text
    told = json.loads(run.text)
    script = Path(told["script"]).read_text()
    assert "#SBATCH --nodes=2\n" in script
    assert "#SBATCH --time=00:10:00\n" in script
    assert "--submit" not in script
    wait = f"while squeue --noheader --job {told['job']} | grep -q .; do sleep 1; done"
    assert hosts.command("/bin/sh", "-c", wait).wait(900) == 0
    said = Path(told["log"]).read_text()
    shown = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert shown["hits"] + shown["misses"] == shown["remote_sampled"] > 0


def test_outside_of_an_allocation_it_is_said_what_to_do(hosts: Any) -> None:
    run = hosts.rudder("train", *COMMON, "--hosts", "slurm", "--home", hosts.folder / "home")
    assert run.wait(180) == 2
    assert "no Slurm allocation" in run.text
    assert "salloc -N HOSTS" in run.text


def test_another_number_of_parts_than_hosts_is_refused(hosts: Any) -> None:
    options = ("--hosts", "slurm", "--parts", "3", "--home", hosts.folder / "home")
    run = hosts.rudder("train", *COMMON, *options, nodes=2)
    assert run.wait(180) == 2
    assert "--hosts slurm means 2 hosts, but the scenario has 3 parts" in run.text


@pytest.mark.parametrize("how", ["launcher", "scancel"])
def test_the_end_of_the_launcher_or_of_the_job_is_the_end_of_everything(
    hosts: Any, traces: Any, how: str
) -> None:
    options = ("--hosts", "slurm", "--home", hosts.folder / "home", "--epochs", "5000")
    env = {traces.VARIABLE: traces.mark}
    words = ("train", "sbm:nodes=2000", "--no-track", "--quiet", *options)
    run = hosts.command("salloc", "--nodes=2", *hosts.rudder_command, *words, env=env)
    home = hosts.folder / "home"
    before = set(home.glob("runs/*"))

    def trains(said: str) -> bool:
        return any(
            journal.stat().st_size > 0
            for new in set(home.glob("runs/*")) - before
            for journal in new.glob("ranks/decisions-*")
        )

    run.wait_for(trains, 900)
    if how == "launcher":
        os.kill(launcher(traces), signal.SIGKILL)
    else:
        assert hosts.command("scancel", f"--user={hosts.user}").wait(30) == 0
    run.wait(IN_TIME)
    traces.assert_gone(seconds=IN_TIME)


def launcher(traces: Any) -> int:
    """The pid of the ``rudder`` that salloc has started."""
    for pid in traces.pids():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"train" in words and b"salloc" not in words:
            return int(pid)
    raise AssertionError("no launcher runs")
