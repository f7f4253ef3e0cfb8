"""A real Slurm on emulated hosts: a slurmd and a munged on each, the controller on one more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emulated import RUDDER, USER, Run, Starter

from rudder.cluster import LocalCluster

NEEDED = ("/usr/sbin/slurmd", "/usr/sbin/slurmctld", "/usr/sbin/munged", "/usr/bin/srun")
INSTALL = "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"

_CONF = """\
ClusterName=test
SlurmctldHost=host{count}({controller})
SlurmUser={user}
SlurmdUser={user}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmdPidFile=/run/rudder-test/slurmd.pid
SlurmctldPidFile=/run/rudder-test/slurmctld.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=2
ReturnToService=2
NodeName=host[0-{last}] CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
"""
_MUNGED = (  # its files are in a folder of the host alone
    "munged --force --key-file={folder}/munge.key --pid-file=/run/rudder-test/munged.pid "
    "--seed-file=/run/rudder-test/munged.seed --log-file=/run/rudder-test/munged.log "
    "&& exec {daemon}"
)


@dataclass
class SlurmHosts:
    """``count`` hosts of a partition; host ``count`` is the controller's, and the user's."""

    cluster: LocalCluster
    folder: Path
    count: int
    starter: Starter
    user: str = USER
    rudder_command: tuple[str, ...] = RUDDER

    @property
    def env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def command(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Run:
        """As the user, on the controller's host."""
        given = [str(word) for word in words]
        return self.starter.start(self.count, given, {**self.env, **(env or {})}, user=True)

    def rudder(self, *arguments: str | Path, nodes: int | None = None) -> Run:
        """``rudder ARGUMENTS``, in an allocation of so many hosts; None: in none."""
        salloc = [] if nodes is None else ["salloc", f"--nodes={nodes}"]
        return self.command(*salloc, *RUDDER, *arguments)


@contextmanager
def slurm_hosts(folder: Path, count: int) -> Iterator[SlurmHosts]:
    """Start it; all hosts are idle when this returns."""
    (folder / "state").mkdir()
    for host in range(count):
        (folder / f"spool-host{host}").mkdir()
    key = folder / "munge.key"
    key.write_bytes(b"of no worth outside of this test" * 4)
    key.chmod(0o400)
    with LocalCluster(count + 1) as cluster:
        controller = cluster.hosts[count].address
        conf = _CONF.format(
            count=count, last=count - 1, controller=controller, user=USER, folder=folder
        )
        (folder / "slurm.conf").write_text(conf)
        made = SlurmHosts(cluster, folder, count, Starter(cluster, folder))
        for host in range(count + 1):
            daemon = "slurmctld -D" if host == count else "slurmd -D"
            script = _MUNGED.format(folder=folder, daemon=daemon)
            made.starter.start(host, ["/bin/sh", "-c", script], made.env, user=True)
        _wait_until_idle(made)
        yield made


def _wait_until_idle(hosts: SlurmHosts, tries: int = 60) -> None:
    said = ""
    for _ in range(tries):
        run = hosts.command("/bin/sh", "-c", "sleep 0.5; sinfo --noheader --format=%T,%D")
        run.wait(30)
        said = run.text
        if f"idle,{hosts.count}" in said.split():
            return
    raise AssertionError(f"the hosts did not become idle: {said}")
