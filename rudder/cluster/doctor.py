"""What this machine offers for emulated hosts, checked by trying."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from rudder.cluster.local import LocalCluster
from rudder.cluster.preflight import Facts
from rudder.cluster.remote import RemoteCluster
from rudder.cluster.support import STILL_WORKS, reasons
from rudder.errors import ClusterError, NamespaceError

_GIB = 1 << 30
_LEAST_SHARED_MEMORY = 1 * _GIB
_LEAST_MEMORY = 4 * _GIB
_LEAST_CPUS = 2


@dataclass(frozen=True)
class Check:
    """One line of ``rudder doctor``.

    Attributes:
        ok: True: as it should be; False: something does not work; None: worth knowing.
        found: what was found.
        advice: what to do about it; empty when nothing is needed.
    """

    name: str
    ok: bool | None
    found: str
    advice: str = ""


def checks() -> list[Check]:
    """All checks of the machine. Takes about a second; starts two hosts and ends them."""
    return [_cpus(), _memory(), *_hosts(), _shared_memory()]


def hosts_checks(cluster: RemoteCluster) -> list[Check]:
    """A line for each host that was reached, and one for every problem of any host."""
    facts, problems = cluster.preflight()
    reached = [Check(str(each.host), True, _told(each)) for each in facts]
    return [*reached, *(Check(p.host, False, p.what, p.remedy) for p in problems)]


def _told(facts: Facts) -> str:
    values = facts.values
    versions = ", ".join(f"{name} {found}" for name, found in values["versions"].items())
    apart = "isolated" if facts.refused is None else f"not isolated ({facts.refused})"
    return (
        f"{values['user']}@{values['hostname']}, python {values['python']}, {versions}; "
        f"{values['interface']}; /dev/shm {values['shared_memory_free'] / _GIB:.1f} GiB, "
        f"{values['data']['nearest']} {values['data']['free'] / _GIB:.1f} GiB free; "
        f"clock {facts.clock_offset:+.1f} s; roles {apart}"
    )


def _cpus() -> Check:
    count = len(os.sched_getaffinity(0))
    if count < _LEAST_CPUS:
        return Check("CPUs", None, f"{count}", "emulated hosts will run slowly, one after another")
    return Check("CPUs", True, f"{count}")


def _memory() -> Check:
    values = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        values[name] = int(rest.split()[0]) * 1024
    total, free = values["MemTotal"], values["MemAvailable"]
    found = f"{total / _GIB:.1f} GiB, {free / _GIB:.1f} GiB available"
    if free < _LEAST_MEMORY:
        return Check("memory", None, found, "8 DistDGL processes take about 4 GiB; use fewer parts")
    return Check("memory", True, found)


def _hosts() -> list[Check]:
    """Start two hosts with shaped links; tell which part of it is refused."""
    names = ("namespaces", "link shaping")
    start = time.monotonic()
    try:
        with LocalCluster(2) as cluster:
            seconds = time.monotonic() - start
            allowed = Check(
                names[0],
                True,
                f"user, network, mount and pid namespaces: 2 hosts in {seconds:.1f} s",
            )
            return [allowed, _shaping(names[1], cluster)]
    except NamespaceError as error:
        advice = "; ".join(reasons()) or "see `dmesg` for what refused it"
        return [
            Check(names[0], False, str(error), f"{advice}. {STILL_WORKS}"),
            Check(names[1], None, "not tried: no namespaces"),
        ]
    except ClusterError as error:
        return [
            Check(names[0], False, str(error), STILL_WORKS),
            Check(names[1], None, "not tried: no hosts"),
        ]


def _shaping(name: str, cluster: LocalCluster) -> Check:
    try:
        cluster.shape(100)
    except ClusterError as error:
        advice = "load the kernel module sch_tbf (modprobe sch_tbf), or run with --rate 0"
        return Check(name, False, str(error), advice)
    return Check(name, True, "token bucket filter (tbf) on both ends of a link")


def _shared_memory() -> Check:
    """Of this machine itself: each emulated host has its own, limited by memory alone."""
    path = Path("/dev/shm")
    if not path.is_dir():
        return Check(
            "/dev/shm", False, "missing", "mount a tmpfs on /dev/shm: DGL keeps its graphs there"
        )
    usage = shutil.disk_usage(path)
    found = f"{usage.total / _GIB:.1f} GiB, {usage.free / _GIB:.1f} GiB free"
    if usage.free < _LEAST_SHARED_MEMORY:
        advice = "emulated hosts have their own; for hosts in containers raise --shm-size"
        return Check("/dev/shm", None, found, advice)
    return Check("/dev/shm", True, found)
