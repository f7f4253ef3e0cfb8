"""What dead runs have left on this machine, and that it is theirs.

The kernel frees nearly everything when a launcher or an agent ends, in whatever way. What it cannot
free is found by what Rudder itself has written down: whose it is (a process, of which it is certain
that it runs no more) and what was made. A name alone proves nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rudder.cluster.arrays import PREFIX
from rudder.cluster.roles import python_command
from rudder.home import Home
from rudder.identity import NOTE_VERSION, Process, state_and_start
from rudder.steering.service import NOTE, SOCKET

_PROCESS = TypeAdapter(Process)
_ARRAYS = TypeAdapter(dict[str, int])
_WORLD = list(python_command("rudder.cluster.world")[1:5])


@dataclass(frozen=True)
class Leftover:
    """One thing that a dead run has left.

    Attributes:
        kind: ``process``, ``shared memory`` or ``folder``.
        what: its number or path.
        proof: why it is a dead run's.
    """

    kind: str
    what: str
    proof: str
    _remove: Callable[[], object] = field(repr=False, compare=False)

    def remove(self) -> None:
        """End or delete it, if it still is what was found.

        Raises:
            OSError: the system refuses.
        """
        self._remove()


def find(
    home: Home, *, shared: Path = Path("/dev/shm"), temporary: Path | None = None
) -> list[Leftover]:
    """Leftovers of this user's dead runs on this machine.

    Args:
        shared: where arrays are shared.
        temporary: where temporary folders are made; default: where Python makes them.
    """
    temporary = Path(tempfile.gettempdir()) if temporary is None else temporary
    return [*_worlds(), *_services(temporary), *_arrays(shared), *_half_made(home)]


def _worlds() -> Iterator[Leftover]:
    """Processes that hold emulated hosts and whose launcher is gone."""
    namespace = os.readlink("/proc/self/ns/pid")
    for name in filter(str.isdigit, os.listdir("/proc")):
        folder = Path("/proc", name)
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            if not _mine(folder) or words[1:5] != _WORLD:
                continue
            if os.readlink(folder / "ns/pid") != namespace:
                continue  # one inside: it ends with the one outside
            launcher = int(json.loads(words[6])["parent"])
            world = Process.of(int(name))
            gone = _launcher_gone(launcher, world)
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            continue  # it has ended meanwhile, or is something else
        if gone:
            proof = f"holds emulated hosts; its launcher, process {launcher}, is gone"
            yield Leftover("process", name, proof, partial(_kill, world))


def _launcher_gone(launcher: int, world: Process) -> bool:
    """A younger process under the launcher's number is another one."""
    try:
        state, started = state_and_start(launcher)
    except (FileNotFoundError, ProcessLookupError):
        return True
    return started > world.started or state in "ZX"


def _services(temporary: Path) -> Iterator[Leftover]:
    """Processes that served controllers, and their folders."""
    for folder in sorted(temporary.glob("rudder-*")):
        note = _note(folder / NOTE) if _own_folder(folder) else None
        owner = _process(note, "owner")
        if note is None or owner is None or not owner.is_gone():
            continue
        served = _process(note, "process")
        proof = f"served the controllers of {owner}, which is gone"
        if served is not None and not served.is_gone():
            yield Leftover("process", str(served.pid), proof, partial(_kill, served))
        if set(os.listdir(folder)) <= {NOTE, SOCKET}:
            yield Leftover("folder", str(folder), proof, partial(_remove_folder, folder))


def _arrays(shared: Path) -> Iterator[Leftover]:
    """Arrays of DistDGL that an agent's roles had, where hosts do not isolate them."""
    for path in sorted(shared.glob(f"{PREFIX}*.json")):
        note = _note(path)
        owner = _process(note, "owner")
        if note is None or owner is None or not owner.is_gone():
            continue
        try:
            arrays = _ARRAYS.validate_python(note.get("arrays"))
        except ValidationError:
            continue
        proof = f"made for roles of {owner}, which is gone"
        files = [(shared / name, inode) for name, inode in arrays.items() if "/" not in name]
        left = [(file, inode) for file, inode in files if _is(file, inode)]
        unused = [(file, inode) for file, inode in left if _unused(file)]
        for file, inode in unused:
            yield Leftover("shared memory", str(file), proof, partial(_unlink, file, inode))
        if unused == left:
            yield Leftover("shared memory", str(path), f"the note of {owner}", path.unlink)


def _half_made(home: Home) -> Iterator[Leftover]:
    """Graphs and partitions whose maker was killed: it would hold their lock."""
    for parent in (home.graphs, home.partitions):
        for folder in sorted(parent.glob(".*.part")):
            lock = folder.with_name(folder.name.removesuffix(".part") + ".lock")
            if _own_folder(folder) and _if_unlocked(lock, lambda: None):
                proof = f"half made, and nobody holds {lock.name}"
                remove = partial(_if_unlocked, lock, partial(shutil.rmtree, folder))
                yield Leftover("folder", str(folder), proof, remove)


# What is looked at.


def _mine(path: Path) -> bool:
    return path.lstat().st_uid == os.getuid()


def _own_folder(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _is(file: Path, inode: int) -> bool:
    try:
        found = file.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and (found.st_ino, found.st_uid) == (inode, os.getuid())


def _note(path: Path) -> dict[str, Any] | None:
    """A note of this user's; None: it is none, or damaged, and proves nothing."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode) or not _mine(path):
            return None
        note = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) and note.get("version") == NOTE_VERSION else None


def _process(note: dict[str, Any] | None, key: str) -> Process | None:
    try:
        return _PROCESS.validate_python((note or {}).get(key))
    except ValidationError:
        return None


def _unused(file: Path) -> bool:
    """Whether nobody has it open or mapped: the kernel grants a lease for writing only then."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:  # in use, or a kernel that cannot tell
        return False
    finally:
        os.close(descriptor)
    return True


# What is done about it.


def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        handle = os.pidfd_open(process.pid)
        try:
            if not process.is_gone():
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _unlink(file: Path, inode: int) -> None:
    if _is(file, inode) and _unused(file):
        file.unlink()


def _remove_folder(folder: Path) -> None:
    for name in (SOCKET, NOTE):
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()


def _if_unlocked(lock: Path, act: Callable[[], None]) -> bool:
    """Act while holding a lock file that is there; False: somebody holds it, or there is none."""
    try:
        file = lock.open("r+")
    except (FileNotFoundError, PermissionError):
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        act()
        return True
