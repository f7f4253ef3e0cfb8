"""What must hold on all hosts before a job starts, and what mends it where it does not."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rudder.cluster.connection import Connection
from rudder.cluster.hosts import Host

MOST_SECONDS_APART = 2.0
"""Clocks further apart make logs of several hosts unreadable, and point to a broken host."""
LEAST_SHARED_MEMORY = 256 << 20
_ROOM = 1.1
"""Of what must fit, so much is asked for: names and pages take some too."""

_LIBRARIES = ("torch", "dgl", "numpy")


@dataclass(frozen=True)
class Facts:
    """What the agent of a host has told.

    Attributes:
        values: as :func:`rudder.cluster.survey.survey` gives them.
        refused: why roles cannot have process ids and a ``/dev/shm`` of their own; None = they can.
        clock_offset: seconds that its clock is ahead of this machine's, at least; as
            :func:`clock_offset` gives them.
    """

    host: Host
    values: dict[str, Any]
    refused: str | None
    clock_offset: float


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong on one host, and the command that mends it (or words, if none)."""

    host: str
    what: str
    remedy: str


def told(problems: Sequence[Problem], hosts: int) -> str:
    """All problems as one message."""
    where = len({problem.host for problem in problems})
    lines = [f"  {p.host}: {p.what}\n    mend it: {p.remedy}" for p in problems]
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return f"{count} on {where} of {hosts} hosts; nothing was started.\n" + "\n".join(lines)


def unreachable(host: Host, link: Connection, by_hand: str, python: str) -> Problem:
    """Why no agent runs on a host, as far as the command that was to reach it has told."""
    said = link.said
    for sign, what, remedy in (
        (
            "Permission denied",
            "it lets nobody in without a password",
            f"ssh-copy-id, then {by_hand}",
        ),
        ("Host key verification failed", "its host key is not known", f"{by_hand} (once, by hand)"),
        ("Could not resolve hostname", "its name is not known", "correct it in the hosts file"),
        ("Connection refused", "nothing listens at its ssh port", "start sshd there"),
        ("timed out", "it does not answer", f"check its network: {by_hand}"),
        ("No route to host", "there is no way to it", f"check its network: {by_hand}"),
    ):
        if sign in said:
            return Problem(str(host), f"cannot be reached: {what} ({_last(said)})", remedy)
    if link.status == 127 or "No such file" in said or "not found" in said:
        remedy = f"{by_hand} ls -l {python}; or name its interpreter: python=PATH"
        return Problem(str(host), f"no interpreter {python} there ({_last(said)})", remedy)
    return Problem(str(host), f"cannot be reached: {link.failure}", by_hand)


def clock_offset(theirs: float, asked: float, answered: float) -> float:
    """Seconds that a clock is ahead for certain, read at some time between question and answer."""
    return theirs - min(max(theirs, asked), answered)


def host_problems(here: Facts, there: Facts) -> list[Problem]:
    """What is wrong with one host by itself."""
    return [
        *_versions(here, there),
        *_address(there),
        *_data(there),
        *_memory(there),
        *_clock(there),
    ]


def together_problems(facts: Sequence[Facts]) -> list[Problem]:
    """What is wrong between hosts."""
    found = []
    seen: dict[str, Facts] = {}
    for each in facts:
        other = seen.setdefault(each.values["machine"], each)
        if other is not each:
            what = f"is the same machine as {other.host}; DGL would mix their shared memory up"
            found.append(Problem(str(each.host), what, "name it once, with trainers=N"))
    return found


def room_problems(
    host: Host, facts: Facts, *, on_disk: int = 0, in_memory: int = 0
) -> list[Problem]:
    """Room that a host lacks, in bytes needed on disk and in ``/dev/shm``."""
    found = []
    data, shared = facts.values["data"], facts.values["shared_memory_free"]
    if on_disk * _ROOM > data["free"]:
        what = f"{data['nearest']} has {_size(data['free'])} free, {_size(on_disk)} are to come"
        found.append(Problem(str(host), what, "make room there, or name another place: data=PATH"))
    if in_memory * _ROOM > min(shared, facts.values["memory_free"]):
        what = (
            f"/dev/shm has {_size(shared)} and memory {_size(facts.values['memory_free'])} free; "
            f"its part takes {_size(in_memory)}"
        )
        remedy = "mount -o remount,size=SIZE /dev/shm (as root), or more parts on more hosts"
        found.append(Problem(str(host), what, remedy))
    return found


def _versions(here: Facts, there: Facts) -> list[Problem]:
    host, python = str(there.host), there.values["executable"]
    own, theirs = here.values["versions"], there.values["versions"]
    found = []
    minor, wanted = (v.values["python"].rpartition(".")[0] for v in (there, here))
    if minor != wanted:
        what = f"{python} is Python {minor}, here it is {wanted}"
        found.append(Problem(host, what, f"name an interpreter {wanted}: python=PATH"))
    for library in _LIBRARIES:
        if theirs[library] != own[library]:
            what = f"{library} {theirs[library] or 'is missing'}, here it is {own[library]}"
            remedy = f"{python} -m pip install {library}=={own[library]}"
            found.append(Problem(host, what, remedy))
    if there.values["source"] is None:
        remedy = f"{python} -m pip install rudder-gnn=={own['rudder-gnn']}"
        found.append(Problem(host, f"{python} has no Rudder", remedy))
    elif there.values["source"] != here.values["source"]:
        what = f"its Rudder ({theirs['rudder-gnn']}) has other files than the one here"
        remedy = f"{python} -m pip install the same wheel or checkout as here"
        found.append(Problem(host, what, remedy))
    if not there.values["home_writable"]:
        what = "HOME is not writable, and importing DGL writes ~/.dgl"
        found.append(Problem(host, what, "make a HOME for that user, or log in as another"))
    return found


def _address(there: Facts) -> list[Problem]:
    if there.values["interface"] is None:
        has = ", ".join(f"{a} ({i})" for i, a in there.values["addresses"].items())
        what = f"no interface there has the address {there.host.address}; it has {has}"
        return [Problem(str(there.host), what, "write one of them, and ssh=NAME for ssh")]
    if ipaddress.IPv4Address(there.host.address).is_loopback:
        what = "that address reaches nothing but the host itself"
        return [Problem(str(there.host), what, "write the address that other hosts reach it by")]
    return []


def _data(there: Facts) -> list[Problem]:
    data = there.values["data"]
    if data["foreign"]:
        what = f"the data directory {data['path']} belongs to uid {data['owner']}, not to you"
        return [Problem(str(there.host), what, "name one of your own: data=PATH")]
    if not data["writable"]:
        what = f"{data['nearest']} is not writable for {there.values['user']}"
        return [Problem(str(there.host), what, "name another data directory: data=PATH")]
    return []


def _memory(there: Facts) -> list[Problem]:
    found = []
    free = there.values["shared_memory_free"]
    if free < LEAST_SHARED_MEMORY:
        what = f"/dev/shm has {_size(free)} free, and DGL keeps its graph there"
        remedy = "mount -o remount,size=50% /dev/shm (as root); in Docker --shm-size"
        found.append(Problem(str(there.host), what, remedy))
    if there.refused is not None and there.values["arrays"]:
        names = there.values["arrays"]
        what = (
            f"another DistDGL job runs there, or has left {len(names)} arrays in /dev/shm "
            f"({names[0]}); they would mix, since roles cannot be isolated ({there.refused})"
        )
        found.append(Problem(str(there.host), what, "wait for it, or rm /dev/shm/*-kvdata-*"))
    return found


def _clock(there: Facts) -> list[Problem]:
    if abs(there.clock_offset) <= MOST_SECONDS_APART:
        return []
    what = f"its clock is {there.clock_offset:+.1f} s from this machine's"
    return [Problem(str(there.host), what, "timedatectl set-ntp true (as root)")]


def _last(said: str) -> str:
    return said.splitlines()[-1] if said else "it said nothing"


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
