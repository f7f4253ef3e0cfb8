"""What an agent tells of its host: versions, addresses, room, clock. Sent to hosts as source."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import pwd
import shutil
import socket
import struct
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SIOCGIFADDR = 0x8915
_BLOCK = 1 << 20
_DGL_ARRAY = "-kvdata-"
"""In the name of every array that a DistDGL server shares; of no job, so two jobs would mix."""


def survey(address: str, data: str) -> dict[str, Any]:
    """Facts of this host, as plain values.

    Args:
        address: the host's IPv4 address on the cluster's network.
        data: its data directory, which need not exist.
    """
    addresses = interfaces()
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "versions": {name: _version(name) for name in ("rudder-gnn", "torch", "dgl", "numpy")},
        "source": package_digest("rudder"),
        "hostname": socket.gethostname(),
        "user": _user(),
        "machine": _machine(),
        "addresses": addresses,
        "interface": next((i for i, a in addresses.items() if a == address), None),
        "clock": time.time(),
        "shared_memory_free": shutil.disk_usage("/dev/shm").free,
        "arrays": sorted(path.name for path in Path("/dev/shm").glob(f"*{_DGL_ARRAY}*")),
        "memory_free": _memory_free(),
        "data": _directory(Path(data)),
        "home_writable": os.access(_dgl_folder(), os.W_OK),
        "rsync": shutil.which("rsync"),
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def package_digest(package: str) -> str | None:
    """SHA-256 over a package's Python files; None where it is not installed. Imports nothing."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        return None
    root = Path(places[0])
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def interfaces() -> dict[str, str]:
    """IPv4 address of each interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:  # no IPv4 address
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def counters(interface: str, process: str = "self") -> list[int]:
    """Bytes that an interface has received and sent, in the network of a process.

    (/sys would show the network of whoever mounted it.)
    """
    path = Path(f"/proc/{process}/net/dev")
    for line in path.read_text().splitlines():
        name, _, values = line.partition(":")
        if name.strip() == interface:
            fields = values.split()
            return [int(fields[0]), int(fields[8])]
    raise OSError(f"no interface {interface} in {path}")


def free_ports(address: str, count: int) -> list[int]:
    """Ports below the kernel's own range that nobody listens at on this address."""
    found: list[int] = []
    while len(found) < count:
        port = 20000 + int.from_bytes(os.urandom(2), "big") % 12000
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((address, port))
            except OSError as error:
                if isinstance(error, PermissionError) or error.errno == errno.EADDRNOTAVAIL:
                    raise
                continue
        if port not in found:
            found.append(port)
    return found


def digests(folder: str, names: Iterable[str]) -> dict[str, str | None]:
    """SHA-256 of files under a folder; None for one that is not there."""
    found: dict[str, str | None] = {}
    for name in names:
        path = Path(folder) / name
        found[name] = file_digest(path) if path.is_file() else None
    return found


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _machine() -> str:
    """The same for two agents that share a network, and so DGL's idea of a machine."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"


def _memory_free() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no line MemAvailable")


def _directory(path: Path) -> dict[str, Any]:
    """Whose a data directory is and what room it has; of the nearest parent where it is missing."""
    nearest = path
    while not nearest.exists():
        nearest = nearest.parent
    return {
        "path": str(path),
        "exists": path.exists(),
        "nearest": str(nearest),
        "foreign": path.exists() and path.stat().st_uid != os.getuid(),
        "owner": nearest.stat().st_uid,
        "uid": os.getuid(),
        "writable": os.access(nearest, os.W_OK | os.X_OK),
        "free": shutil.disk_usage(nearest).free,
    }


def _dgl_folder() -> Path:
    """Where importing DGL writes."""
    folder = Path.home() / ".dgl"
    return folder if folder.exists() else folder.parent
