"""Batch scripts for Slurm, and what is asked of Slurm's commands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rudder.cli import submit as command
from rudder.cluster import batch, slurm
from rudder.cluster.batch import batch_script, submit
from rudder.cluster.slurm import SlurmCluster, allocated_nodes
from rudder.errors import ClusterError, HostsFileError, UsageError


def fake(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of Slurm's that says what the test wants."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_script_can_be_read_and_quotes_what_it_must(tmp_path: Path) -> None:
    arguments = ["train", "custom:path=/data/my graph", "--hosts", "slurm"]
    data = tmp_path / "a b"
    text = batch_script(arguments, 4, ["time=01:00:00", "exclusive"], data, tmp_path / "%j.log")
    assert text.startswith("#!/bin/sh\n# rudder train 'custom:path=/data/my graph' --hosts slurm\n")
    for option in ("nodes=4", "ntasks-per-node=1", "time=01:00:00", "exclusive"):
        assert f"\n#SBATCH --{option}\n" in text
    assert f"\nexport RUDDER_HOME='{data}'\n" in text
    subprocess.run(["/bin/sh", "-n"], input=text, text=True, check=True)
    run = text.replace("exec ", "printf '%s|' ")  # what the shell makes of the line
    said = subprocess.run(["/bin/sh"], input=run, text=True, check=True, capture_output=True).stdout
    assert said.endswith("|train|custom:path=/data/my graph|--hosts|slurm|")


@pytest.mark.parametrize("option", ["--time=1", "time=1\nreboot", "Time", "x y", ""])
def test_what_is_no_option_of_sbatch_is_refused(tmp_path: Path, option: str) -> None:
    with pytest.raises(UsageError, match="no option of sbatch"):
        batch_script(["train"], 1, [option], tmp_path, tmp_path / "log")


def test_the_job_runs_the_same_command_line_on_its_hosts() -> None:
    given = ["launch", "g", "s.py", "--submit", "--sbatch", "time=1", "--sbatch=qos=low", "--json"]
    rest = ["--", "--submit", "--sbatch", "mine"]
    kept = ["launch", "g", "s.py", "--json"]
    assert command.without_submit(given + rest) == [*kept, "--hosts", "slurm", *rest]
    assert command.without_submit([*kept, "--hosts=slurm"]) == [*kept, "--hosts=slurm"]


def test_sbatch_answers_with_the_number_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, "sbatch", 'test "$1" = --parsable && echo "77;cluster"', monkeypatch)
    done = submit("#!/bin/sh\n", tmp_path / "x.sh", tmp_path / "x-%j.log")
    assert (done.job, done.log.name) == (77, "x-77.log")
    assert done.script.read_text() == "#!/bin/sh\n"
    fake(tmp_path, "sbatch", "echo Submitted", monkeypatch)
    with pytest.raises(ClusterError, match=r"'Submitted.n', which is no job number"):
        submit("", tmp_path / "x.sh", tmp_path / "log")
    fake(tmp_path, "sbatch", "echo invalid partition >&2; exit 1", monkeypatch)
    with pytest.raises(ClusterError, match=r"sbatch --parsable .*failed: invalid partition"):
        submit("", tmp_path / "x.sh", tmp_path / "log")


def test_the_hosts_of_an_allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, "scontrol", 'test "$3" = "n[1-2]" && printf "n1\\nn2\\n"', monkeypatch)
    assert allocated_nodes({"SLURM_JOB_NODELIST": "n[1-2]"}) == ["n1", "n2"]
    with pytest.raises(UsageError, match=r"no Slurm allocation .*salloc -N HOSTS"):
        allocated_nodes({})
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(ClusterError, match="there is no scontrol here"):
        allocated_nodes({"SLURM_JOB_NODELIST": "n1"})


def test_a_command_of_slurm_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, "scontrol", "exec sleep 60", monkeypatch)
    monkeypatch.setattr(slurm, "_SECONDS_FOR_A_COMMAND", 0.2)
    with pytest.raises(ClusterError, match="takes over 0 s"):
        allocated_nodes({"SLURM_JOB_NODELIST": "n1"})


def test_public_hosts_of_slurm_need_a_word_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "resolve_address", lambda line: "93.184.216.34")
    with pytest.raises(HostsFileError, match=r"Slurm's host n1: 93.184.216.34 is a public"):
        SlurmCluster(["n1"], tmp_path)
    assert SlurmCluster(["n1"], tmp_path, allow_public=True).hosts[0].name == "n1"


def test_the_script_starts_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch.sys, "executable", str(tmp_path / "python"))
    bare = batch_script(["train"], 1, [], tmp_path, tmp_path / "log")
    assert f"exec {tmp_path}/python -I -c " in bare
    (tmp_path / "rudder").touch()
    assert f"exec {tmp_path}/rudder train\n" in batch_script(
        ["train"], 1, [], tmp_path, tmp_path / "log"
    )
