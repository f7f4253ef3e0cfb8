"""A sweep on disk: what was asked for, and the cells that have ended.

``HOME/sweeps/NAME/`` holds ``sweep.json``, ``cells.jsonl`` (:mod:`.cells`) and ``begun.txt``: which
run stands for which cell, written before the run begins, so that one which had ended when its
process was killed is found again. The latest request counts: cells of an earlier one that it does
not ask for stay in the file, and are no longer part of the sweep.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rudder.errors import SweepError, UsageError
from rudder.home import Home
from rudder.locks import held
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.suite import Suite
from rudder.timing import Machine
from rudder.tracking.provenance import code_version
from rudder.versions import installed

from .cells import Cell, Family, read_cells
from .contenders import Contender

EngineName = Literal["replay", "distdgl"]
SCHEMA_VERSION = 1
HEAD, CELLS, BEGUN, LOCK, SCRATCH = (
    "sweep.json", "cells.jsonl", "begun.txt", ".lock", "scratch",
)  # fmt: skip
CONTROL_OF = "control_of"
"""Key of a control's summary: the cell that it stands beside."""
_LIBRARIES = ("numpy", "numba", "pyarrow", "dgl", "torch")


@dataclass(frozen=True)
class Planned:
    """A cell before it is run.

    Attributes:
        cell: its digest.
        scenario: name in the suite.
        split, axis, controller, family, engine: as of :class:`.cells.Cell`.
        run: the scenario with the seed.
        spec: resolved controller.
        of: of a control, the cell that it stands beside; else "".
        tracked: does MLflow get it? Constant schedules run for headroom stay out.
    """

    cell: str
    scenario: str
    split: str
    axis: str
    controller: str
    family: Family
    engine: EngineName
    run: Scenario
    spec: Spec
    of: str = ""
    tracked: bool = True

    @property
    def seed(self) -> int:
        return self.run.seed

    def __str__(self) -> str:
        return f"{self.controller}, {self.scenario}, seed {self.seed}"


def cell_digest(
    scenario: Scenario,
    spec: Spec,
    engine: EngineName,
    trace_id: str,
    clock: str,
    content: str = "",
) -> str:
    """What makes a cell another one: 16 hex digits.

    Args:
        scenario: with its seed.
        trace_id: of the access trace; "" where the accesses are not fixed.
        clock: digest of the machine whose seconds are modelled; "" where none are.
        content: of what the spec names.
    """
    told = [scenario.digest(), spec.to_json(), engine, trace_id, clock, content]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


class Sweep:
    """One sweep's directory.

    Attributes:
        folder: of it.
        head: what ``sweep.json`` says.
    """

    def __init__(self, folder: Path, head: dict[str, Any]) -> None:
        self.folder, self.head = folder, head

    @classmethod
    def open(cls, folder: Path) -> Sweep:
        """A sweep that was begun before.

        Raises:
            SweepError: none lies there, or it is damaged or of another version.
        """
        path = folder / HEAD
        try:
            head = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SweepError(f"no sweep in {folder}: {error}") from error
        if not isinstance(head, dict) or head.get("schema_version") != SCHEMA_VERSION:
            raise SweepError(
                f"{path} is not of schema version {SCHEMA_VERSION}; evaluate under another --name"
            )
        return cls(folder, head)

    @classmethod
    def begin(
        cls,
        home: Home,
        name: str,
        suite: Suite,
        engine: EngineName,
        seeds: Sequence[int],
        contenders: Sequence[Contender],
        controls: bool,
        machine: Machine,
    ) -> Sweep:
        """Begin a sweep, or go on with the one of this name.

        The caller holds its lock, and saves it once it knows the cells.

        Raises:
            UsageError: one of this name is of another suite or engine.
            SweepError: it is damaged.
        """
        folder = home.sweeps / name
        before: dict[str, Any] = {}
        if (folder / HEAD).exists():
            before = cls.open(folder).head
            other = [
                f"{key} {was}"
                for key, was, now in (
                    ("suite", before["suite"]["name"], suite.name),
                    ("engine", before["engine"], engine),
                )
                if was != now
            ]
            if other:
                raise UsageError(
                    f"the sweep {folder} was made of {' and '.join(other)}; choose another --name"
                )
        libraries = {one: installed(one) or "" for one in _LIBRARIES}
        head = {
            "schema_version": SCHEMA_VERSION,
            "name": name,
            "suite": {
                "name": suite.name,
                "digest": suite.digest(),
                "path": None if suite.path is None else str(suite.path),
                "scenarios": suite.names,
            },
            "engine": engine,
            "seeds": list(seeds),
            "controllers": [
                {"name": c.name, "spec": c.spec.to_dict(), "family": c.family, "seeds": c.seeds}
                for c in contenders
            ],
            "controls": controls,
            "machine": dataclasses.asdict(machine),
            "versions": {"rudder": code_version(), **libraries},
            "created": before.get("created", _now()),
            "mlflow": before.get("mlflow"),
            "costs": before.get("costs"),
            "cells": [],
        }
        return cls(folder, head)

    @property
    def name(self) -> str:
        return str(self.head["name"])

    def save(self, **changes: Any) -> None:
        """Write ``sweep.json``, whole."""
        self.head |= changes
        part = self.folder / (HEAD + ".part")
        part.write_text(json.dumps(self.head, indent=1) + "\n", encoding="utf-8")
        part.replace(self.folder / HEAD)

    def all_cells(self) -> dict[str, Cell]:
        """Every cell that was ever run under this name, by its digest."""
        path = self.folder / CELLS
        return {cell.cell: cell for cell in read_cells(path)} if path.exists() else {}

    def cells(self) -> list[Cell]:
        """The cells of the latest request, in its order, and their controls."""
        return chosen(self.head, self.all_cells())

    def begun(self) -> dict[str, list[str]]:
        """Ids of the runs that were begun for each cell, the newest first."""
        found: dict[str, list[str]] = defaultdict(list)
        path = self.folder / BEGUN
        if path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                cell, _, run_id = line.partition(" ")
                if run_id:
                    found[cell].insert(0, run_id)
        return dict(found)


def chosen(head: Mapping[str, Any], cells: Mapping[str, Cell]) -> list[Cell]:
    """Of some cells those that a sweep's latest request asks for; all, where it lists none."""
    wanted: Iterable[str] = head.get("cells") or cells
    controls = defaultdict(list)
    for cell in cells.values():
        if of := cell.summary.get(CONTROL_OF):
            controls[of].append(cell)
    found: dict[str, Cell] = {}
    for digest in wanted:
        if digest in cells:
            found[digest] = cells[digest]
            found |= {control.cell: control for control in controls[digest]}
    return list(found.values())


def note_begun(folder: Path, cell: str, run_id: str) -> None:
    """Write down which run is to stand for a cell."""
    with (folder / BEGUN).open("a", encoding="utf-8") as file:
        file.write(f"{cell} {run_id}\n")


@contextmanager
def alone(home: Home, name: str) -> Iterator[None]:
    """Hold a sweep's lock.

    Raises:
        UsageError: no name for a directory.
        SweepError: another process works at it.
    """
    if not re.fullmatch(r"[\w][\w.=,-]*", name):
        raise UsageError(
            f"a sweep cannot be named {name!r}: letters, digits and . _ - = , only, and a letter "
            "or digit first"
        )
    folder = home.sweeps / name
    folder.mkdir(exist_ok=True)
    busy = SweepError(
        f"another process works at the sweep {folder}; wait for its end, or choose another --name"
    )
    with held(folder / LOCK, busy):
        yield


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
