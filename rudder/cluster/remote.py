"""Hosts that are reached by a command each (ssh, srun), with one agent on every host."""

from __future__ import annotations

import os
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from rudder.cluster.connection import Connection, RemoteProcess
from rudder.cluster.hosts import (
    Cluster,
    Counters,
    Host,
    check_hosts,
    check_rate,
    output_pipe,
)
from rudder.cluster.preflight import (
    Facts,
    Problem,
    clock_offset,
    host_problems,
    room_problems,
    together_problems,
    told,
    unreachable,
)
from rudder.cluster.report import VARIABLE
from rudder.cluster.roles import Role
from rudder.cluster.streams import CommandStream, Stream
from rudder.cluster.survey import file_digest, survey
from rudder.errors import ClusterError, PreflightError, UsageError

_SECONDS_TO_CONNECT = 60.0
_SECONDS_TO_ANSWER = 30.0
_SECONDS_TO_HASH = 3600.0
_HEARTBEAT_SECONDS = 1.0
_AGENT_SILENCE_S = 30.0
"""An agent that has heard nothing for so long ends, and all that it started."""

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Reach:
    """How one host is reached.

    Attributes:
        host: the host; its interface is found out.
        command: what runs ``shipped.BOOTSTRAP`` there.
        python: its interpreter with Rudder.
        data: its data directory.
        by_hand: a command that shows whether it can be reached, for messages.
        isolated: as in :class:`rudder.cluster.hostsfile.HostLine`.
    """

    host: Host
    command: tuple[str, ...]
    python: str
    data: Path
    by_hand: str
    isolated: bool = True


class RemoteCluster(Cluster):
    """What ``ssh`` and ``slurm`` have in common.

    Args:
        reaches: one per host.
        data: the launcher's data directory: what lies below it lies on each host below its own.
    """

    with_launcher = False

    def __init__(self, reaches: Sequence[Reach], data: Path) -> None:
        self.hosts = check_hosts([reach.host for reach in reaches])
        self._reaches = tuple(reaches)
        self._data = data
        self._links: list[Connection] = []
        self._facts: list[Facts] = []
        """Of the hosts that were reached."""
        self._stop = threading.Event()
        self._pulse = threading.Thread(target=self._beat, name="rudder-heartbeat", daemon=True)

    @abstractmethod
    def copy(self, host: int, folder: Path, names: Sequence[str], back: bool) -> None:
        """Copy files of a folder to its place on a host, or back from there.

        Args:
            names: below the folder; back: none, all that lies there comes.

        Raises:
            ClusterError: it did not work.
        """

    @abstractmethod
    def no_way(self, facts: Facts) -> str | None:
        """What is missing to copy files to a host; None if nothing."""

    def __enter__(self) -> RemoteCluster:
        if self._pulse.ident is not None:
            raise ClusterError("this cluster has been started already; make a new one")
        try:
            problems = self._look()
            if problems:
                raise PreflightError(told(problems, len(self.hosts)))
        except BaseException:
            self._end()
            raise
        self.hosts = tuple(
            replace(host, interface=str(facts.values["interface"]))
            for host, facts in zip(self.hosts, self._facts, strict=True)
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def preflight(self) -> tuple[list[Facts], list[Problem]]:
        """Look at all hosts and leave them again: facts of those reached, and every problem."""
        try:
            problems = self._look()
            return self._facts, problems
        finally:
            self._end()

    def spawn(self, role: Role) -> RemoteProcess:
        link = self._link(role.host)
        output, writer = output_pipe()
        argv = role.command(self._reaches[role.host].python)
        env = {"PYTHONUNBUFFERED": "1", VARIABLE: "1", **role.env}
        try:
            return link.spawn(
                role, {"argv": list(argv), "env": env, "cwd": str(role.cwd)}, output, writer
            )
        except ClusterError:
            os.close(output)
            raise

    def failure(self) -> str | None:
        if not self._links:
            return "this cluster is not running"
        return next((link.failure for link in self._links if link.failure is not None), None)

    def clean(self) -> None:
        self._ask_all("clean", _SECONDS_TO_ANSWER)

    def counters(self) -> list[Counters]:
        given = self._each(
            lambda host: self._link(host.index).ask(
                "counters", _SECONDS_TO_ANSWER, interface=host.interface
            )
        )
        return [Counters(received, sent) for received, sent in given]

    def shape(self, rate_mbit: float) -> None:
        if check_rate(rate_mbit) != 0:
            raise UsageError(
                f"the links of {self.kind} hosts are what they are, and a rate of {rate_mbit:g} "
                "Mbit/s cannot be had; leave out --rate (0)"
            )

    def python(self, host: int) -> str:
        return self._reaches[host].python

    def place(self, host: int, path: Path) -> Path:
        if not path.is_relative_to(self._data):
            return path
        return self._reaches[host].data / path.relative_to(self._data)

    def free_ports(self, host: int, wanted: Sequence[int]) -> list[int]:
        found: list[int] = self._link(host).ask(
            "ports", _SECONDS_TO_ANSWER, address=self.hosts[host].address, count=len(wanted)
        )
        return found

    def deliver(
        self, folder: Path, files: Sequence[Sequence[str]], *, in_memory: bool = False
    ) -> None:
        shared = self._shared(folder)
        apart = [host for host in self.hosts if not shared[host.index]]
        names = {name for host in apart for name in files[host.index] if _is_file(name)}
        own = {name: file_digest(folder / name) for name in names}
        problems: list[Problem] = []
        for found in self._each(lambda h: self._deliver(h, folder, files[h.index], own), apart):
            problems += found
        if in_memory:
            for host in self.hosts:
                loaded = filter(_is_file, files[host.index])
                size = sum((folder / name).stat().st_size for name in loaded)
                problems += room_problems(host, self._facts[host.index], in_memory=size)
        if problems:
            raise PreflightError(told(problems, len(self.hosts)))

    def check_file(self, path: Path) -> None:
        own, problems = file_digest(path), []
        for host, theirs in zip(
            self.hosts,
            self._ask_all("digests", _SECONDS_TO_HASH, folder="/", names=[str(path)[1:]]),
            strict=True,
        ):
            found = theirs[str(path)[1:]]
            if found != own:
                what = f"{path} is {'missing' if found is None else 'another file'} there"
                reached = self._reaches[host.index].by_hand
                problems.append(Problem(str(host), what, f"copy {path.parent} there ({reached})"))
        if problems:
            raise PreflightError(told(problems, len(self.hosts)))

    def collect(self, folder: Path) -> None:
        shared = self._shared(folder)
        apart = [host for host in self.hosts if not shared[host.index]]
        self._each(lambda host: self.copy(host.index, folder, (), True), apart)

    # Inside.

    def _look(self) -> list[Problem]:
        """Start the agents, ask each what its host is like, and tell what is wrong."""
        for reach in self._reaches:
            config = {
                "isolated": reach.isolated,
                "silence_s": _AGENT_SILENCE_S,
                "env": {"RUDDER_HOME": str(reach.data)},
            }
            self._links.append(Connection(reach.host, self._open(reach), config))
        self._pulse.start()
        problems: list[Problem] = []
        deadline = time.monotonic() + _SECONDS_TO_CONNECT
        for link in self._links:
            link.wait_up(max(0.0, deadline - time.monotonic()))
        found = self._each(self._survey)
        self._facts = [each for each in found if each is not None]
        here = self._here()
        for reach, link, each in zip(self._reaches, self._links, found, strict=True):
            if each is None:
                problems.append(unreachable(reach.host, link, reach.by_hand, reach.python))
            else:
                problems += host_problems(here, each)
        problems += together_problems(self._facts)
        reached = [each for each in self._facts if each.values["data"]["writable"]]
        seen = self._shared(self._data, [each.host for each in reached])
        for host, facts, shared in zip((e.host for e in reached), reached, seen, strict=True):
            lacking = None if shared else self.no_way(facts)
            if lacking is not None:
                what = f"it does not share the data directory {self._data}, and {lacking}"
                remedy = "install rsync here and there, or name a shared folder: --home, data=PATH"
                problems.append(Problem(str(host), what, remedy))
        return problems

    def _open(self, reach: Reach) -> Stream:
        """A stream to the agent's bootstrap on a host."""
        return CommandStream(reach.command)

    def _here(self) -> Facts:
        host = Host(-1, "this machine", "")
        return Facts(host, survey("", str(self._data)), None, 0.0)

    def _survey(self, host: Host) -> Facts | None:
        link, reach = self._links[host.index], self._reaches[host.index]
        before = time.time()
        try:
            values = link.ask(
                "survey",
                _SECONDS_TO_ANSWER,
                address=host.address,
                data=str(reach.data),
            )
        except ClusterError as error:
            link.failure = link.failure or str(error)
            return None
        return Facts(host, values, link.refused, clock_offset(values["clock"], before, time.time()))

    def _shared(self, folder: Path, hosts: Sequence[Host] | None = None) -> list[bool]:
        """For each host, whether its place for a folder is that folder itself, seen by a mark."""
        mark = folder / f".rudder-{os.urandom(8).hex()}"
        mark.touch()
        try:
            return [
                found[0]
                for found in self._each(
                    lambda host: self._link(host.index).ask(
                        "exists",
                        _SECONDS_TO_ANSWER,
                        paths=[str(self.place(host.index, mark))],
                    ),
                    hosts,
                )
            ]
        finally:
            mark.unlink()

    def _deliver(
        self, host: Host, folder: Path, names: Sequence[str], own: Mapping[str, str]
    ) -> list[Problem]:
        link, place = self._link(host.index), str(self.place(host.index, folder))
        lacking = self._differing(link, place, names, own)
        size = sum((folder / name).stat().st_size for name in lacking)
        problems = room_problems(host, self._facts[host.index], on_disk=size)
        if problems:
            return problems
        for made in [place, *(f"{place}/{name}" for name in names if not _is_file(name))]:
            link.ask("make", _SECONDS_TO_ANSWER, path=made)
        if not lacking:
            return []
        try:
            self.copy(host.index, folder, lacking, False)
        except ClusterError as error:
            return [Problem(str(host), str(error), "make room there, or check that rsync works")]
        still = self._differing(link, place, lacking, own)
        what = f"{place} holds other bytes than {folder} after copying: {', '.join(still)}"
        remedy = "copy again when nobody writes there"
        return [Problem(str(host), what, remedy)] if still else []

    def _differing(
        self, link: Connection, place: str, names: Sequence[str], own: Mapping[str, str]
    ) -> list[str]:
        wanted = [name for name in names if _is_file(name)]
        theirs = link.ask("digests", _SECONDS_TO_HASH, folder=place, names=wanted)
        return [name for name in wanted if theirs[name] != own[name]]

    def _link(self, host: int) -> Connection:
        if not 0 <= host < len(self.hosts):
            raise UsageError(f"there are only {len(self.hosts)} hosts, none has the number {host}")
        if not self._links:
            raise ClusterError("this cluster is not running")
        return self._links[host]

    def _ask_all(self, request: str, seconds: float, **arguments: Any) -> list[Any]:
        return self._each(lambda host: self._link(host.index).ask(request, seconds, **arguments))

    def _each(
        self, act: Callable[[Host], _Value], hosts: Sequence[Host] | None = None
    ) -> list[_Value]:
        """For all hosts at once."""
        hosts = self.hosts if hosts is None else hosts
        if not hosts:
            return []
        with ThreadPoolExecutor(min(len(hosts), 64)) as pool:
            return list(pool.map(act, hosts))

    def _beat(self) -> None:
        """The thread that asks for signs of life."""
        since = last = time.monotonic()
        while not self._stop.wait(_HEARTBEAT_SECONDS):
            now = time.monotonic()
            if now - last > 4 * _HEARTBEAT_SECONDS:  # it was this process that stood still
                since = now
            last = now
            for link in self._links:
                link.check(since)

    def _end(self) -> None:
        self._stop.set()
        if self._pulse.is_alive():
            self._pulse.join()
        links, self._links = self._links, []
        if links:
            with ThreadPoolExecutor(len(links)) as pool:
                list(pool.map(Connection.close, links))


def _is_file(name: str) -> bool:
    return not name.endswith("/")
