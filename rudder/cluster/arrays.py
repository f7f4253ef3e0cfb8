"""Which files in a ``/dev/shm`` that others use too are those of an agent's roles: its note.

An agent that is killed with its roles frees nothing. Its note says what was theirs, so that
``rudder doctor --clean`` need not guess (see ``rudder/leftovers.py``). Sent to hosts as source.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict
from pathlib import Path

from rudder.cluster.processes import descendants
from rudder.identity import NOTE_VERSION, Process

PREFIX = "rudder-agent-"


class ArrayNote:
    """Notes what this process's descendants have mapped.

    Args:
        folder: ``/dev/shm``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owner = Process.own()
        self.path = folder / f"{PREFIX}{self._owner.pid}-{self._owner.started}.json"
        self._before = self._names()
        self._arrays: dict[str, int] = {}

    def look(self) -> None:
        """Note what is new since the last look. A listing, while nothing is."""
        new = self._names() - self._before - self._arrays.keys() - {self.path.name}
        found = {}
        for name in new & self._mapped() if new else ():
            try:
                found[name] = (self._folder / name).lstat().st_ino
            except FileNotFoundError:
                continue  # it is gone already
        if found and self._keep({**self._arrays, **found}):
            self._arrays.update(found)

    def forget(self) -> None:
        """All has been freed."""
        self._arrays.clear()
        self.path.unlink(missing_ok=True)

    def _keep(self, arrays: dict[str, int]) -> bool:
        """Write the note anew. False: there is no room now, which must not end the job."""
        part = self.path.with_name(f".{self.path.name}.part")
        note = {"version": NOTE_VERSION, "owner": asdict(self._owner), "arrays": arrays}
        try:
            part.write_text(json.dumps(note))
            part.replace(self.path)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            part.unlink(missing_ok=True)
            return False
        return True

    def _names(self) -> set[str]:
        return set(os.listdir(self._folder))

    def _mapped(self) -> set[str]:
        """Names in the folder that a descendant has mapped."""
        found = set()
        start = f"{self._folder}/"
        for pid in descendants(os.getpid()):
            try:
                maps = Path(f"/proc/{pid}/maps").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            for line in maps.splitlines():
                _, here, name = line.partition(start)
                if here and not name.endswith(" (deleted)"):
                    found.add(name)
        return found
