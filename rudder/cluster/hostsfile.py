"""The hosts file: the hosts of an ``ssh`` cluster, as lines or as TOML.

::

    # [USER@]ADDRESS[:PORT] [KEY=VALUE …]
    ann@10.0.0.1
    10.0.0.2:2222  user=ann trainers=2 devices=0,1 python=/opt/rudder/bin/python data=/scratch/ann

In TOML (a name that ends with ``.toml``) every host is a table ``[[host]]`` with the same keys, and
a key above the first of them holds for all hosts.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudder.errors import HostsFileError
from rudder.toml import read_toml

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*")
_PLAIN_PATH = re.compile(r"/[^\x00-\x1f]*")


@dataclass(frozen=True)
class HostLine:
    """One host of the file.

    Attributes:
        where: file and line, for messages.
        address: IPv4 address or host name on the network that joins the hosts.
        user, port: what ssh is told; None = as ssh's own configuration says.
        ssh: what ssh connects to where that is not the address (an alias, say).
        trainers: trainers on this host; None = as the scenario says.
        devices: CUDA devices for them.
        python: interpreter with Rudder; None = the launcher's own path.
        data: data directory; None = the launcher's own path.
        isolated: give the roles process ids and a ``/dev/shm`` of their own, if that is allowed.
    """

    where: str
    address: str
    user: str | None = None
    port: int | None = None
    ssh: str | None = None
    trainers: int | None = None
    devices: tuple[int, ...] | None = None
    python: str | None = None
    data: Path | None = None
    isolated: bool = True


def read_hosts(path: Path) -> tuple[HostLine, ...]:
    """The hosts of a file, in order of their parts.

    Raises:
        HostsFileError: it cannot be read, names no host, or a line cannot be meant.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HostsFileError(f"the hosts file {path.absolute()} cannot be read: {error}") from error
    tables = _toml(path, text) if path.suffix == ".toml" else _lines(path, text)
    hosts = tuple(_host(where, values) for where, values in tables)
    if not hosts:
        raise HostsFileError(f"{path} names no host; write one ADDRESS a line")
    _refuse_twins(hosts)
    return hosts


def resolve_address(host: HostLine) -> str:
    """The IPv4 address of a host.

    Raises:
        HostsFileError: its name has none.
    """
    try:
        found = socket.getaddrinfo(host.address, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise HostsFileError(
            f"{host.where}: {host.address} has no IPv4 address ({error.args[-1]}); write the "
            "address that the other hosts reach it by, and ssh=NAME for what ssh connects to"
        ) from error
    return str(found[0][4][0])


def check_private(address: str, where: str, allow_public: bool) -> None:
    """Refuse an address of the Internet: DGL's RPC trusts, and unpickles, whatever reaches it.

    Raises:
        HostsFileError: it is public, and that was not allowed.
    """
    if ipaddress.IPv4Address(address).is_global and not allow_public:
        raise HostsFileError(
            f"{where}: {address} is a public address. DGL and gloo authenticate nobody, and "
            "whoever reaches their ports can run code as you. Use the hosts' private addresses "
            "(ssh=NAME may still name the public one), or, behind a firewall that you trust, "
            "--allow-public"
        )


def _lines(path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{path}:{number}"
        values = _target(where, words[0])
        for word in words[1:]:
            key, equals, value = word.partition("=")
            if not equals:
                raise HostsFileError(f"{where}: {word!r} is not KEY=VALUE")
            if key in values:
                raise HostsFileError(f"{where}: {key} is given twice")
            values[key] = value
        found.append((where, values))
    return found


def _target(where: str, text: str) -> dict[str, Any]:
    """``[USER@]ADDRESS[:PORT]``."""
    user, at, rest = text.rpartition("@")
    if rest.startswith("[") or rest.count(":") > 1:
        raise HostsFileError(
            f"{where}: {rest} is an IPv6 address; DistDGL's hosts are known by IPv4 addresses: "
            "write the host's IPv4 address or a name that has one"
        )
    address, colon, port = rest.partition(":")
    values: dict[str, Any] = {"address": address}
    if at:
        values["user"] = user
    if colon:
        values["port"] = port
    return values


def _toml(path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    content = read_toml(path)
    tables = content.pop("host", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise HostsFileError(f"{path}: hosts are written as tables [[host]]")
    heads = [
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if re.match(r"\s*\[\[\s*host\s*\]\]", line)
    ]
    if len(heads) != len(tables):
        heads = [0] * len(tables)  # written in another way, whose lines are not known
    return [
        (f"{path}:{line}" if line else f"{path}, host {index}", {**content, **table})
        for index, (line, table) in enumerate(zip(heads, tables, strict=True))
    ]


def _host(where: str, values: Mapping[str, Any]) -> HostLine:
    if unknown := sorted(set(values) - set(_READERS)):
        raise HostsFileError(
            f"{where}: no such key: {', '.join(unknown)}; there are {', '.join(_READERS)}"
        )
    if "address" not in values:
        raise HostsFileError(f"{where}: a host needs an address")
    read = {}
    for key, value in values.items():
        try:
            read[key] = _READERS[key](value)
        except ValueError as error:
            raise HostsFileError(f"{where}: {key} = {value!r}: {error}") from error
    return HostLine(where, **read)


def _refuse_twins(hosts: tuple[HostLine, ...]) -> None:
    seen: dict[str, HostLine] = {}
    for host in hosts:
        other = seen.setdefault(host.address, host)
        if other is not host:
            raise HostsFileError(
                f"{host.where}: {host.address} stands in {other.where} already; a host holds one "
                "part (for more trainers on it: trainers=N)"
            )


def _matching(pattern: re.Pattern[str], what: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(f"is no {what}")
        return value

    return read


def _address(value: Any) -> str:
    if isinstance(value, str) and ":" in value:
        raise ValueError("an IPv6 address; write the host's IPv4 address or a name that has one")
    name = _matching(_NAME, "IPv4 address or host name")(value)
    if re.fullmatch(r"[\d.]+", name):
        ipaddress.IPv4Address(name)  # its own words say what is wrong
    return name


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not re.fullmatch(r"\d{1,9}", str(value)):
            raise ValueError("is no whole number")
        if not least <= int(value) <= most:
            raise ValueError(f"must lie in {least}..{most}")
        return int(value)

    return read


def _devices(value: Any) -> tuple[int, ...]:
    given = value if isinstance(value, list) else str(value).split(",")
    devices = tuple(_whole(0, 1023)(device) for device in given)
    if len(set(devices)) != len(devices) or not devices:
        raise ValueError("must name CUDA devices such as 0,1, each once")
    return devices


def _path(value: Any) -> str:
    return _matching(_PLAIN_PATH, "absolute path")(value)


def _truth(value: Any) -> bool:
    words = {"true": True, "false": False}
    if str(value).lower() not in words:
        raise ValueError("must be true or false")
    return words[str(value).lower()]


_READERS: dict[str, Callable[[Any], Any]] = {
    "address": _address,
    "user": _matching(_USER, "user name"),
    "port": _whole(1, 65535),
    "ssh": _matching(_NAME, "host name or alias"),
    "trainers": _whole(1, 1024),
    "devices": _devices,
    "python": _path,
    "data": lambda value: Path(_path(value)),
    "isolated": _truth,
}
