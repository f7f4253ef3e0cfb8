"""A job: all that a trainer process needs, as one JSON file in the run's directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rudder.distdgl.checkpoint import FOLDER
from rudder.plugins import PluginFile
from rudder.scenario import Scenario
from rudder.spec import Spec


@dataclass(frozen=True)
class Job:
    """One training run, as its trainers see it.

    Attributes:
        scenario, controller: what to run, fixed fields of the controller laid over.
        partition: folder of the partition.
        run_dir: where every rank writes its part of the result (``ranks/``).
        plugins: plug-in files to load, checked by hash.
        verify: test mode of the loader.
        record: access trace that every rank records into; None = none.
        service: socket of the process that serves the trainers' controllers; None = none.
        checkpoint: does every rank keep a checkpoint at the end of an epoch?
        resume: go on after this epoch, whose checkpoint is there; None = from the beginning.
    """

    scenario: Scenario
    controller: Spec
    partition: Path
    run_dir: Path
    plugins: tuple[PluginFile, ...] = ()
    verify: bool = False
    record: Path | None = None
    service: Path | None = None
    checkpoint: bool = True
    resume: int | None = None

    @property
    def path(self) -> Path:
        return self.run_dir / "job.json"

    def at(self, place: Callable[[Path], Path]) -> Job:
        """The same job with every path as another host has it."""
        return replace(
            self,
            partition=place(self.partition),
            run_dir=place(self.run_dir),
            plugins=tuple(PluginFile(str(place(Path(p.path))), p.sha256) for p in self.plugins),
            record=None if self.record is None else place(self.record),
        )

    def save(self, path: Path | None = None) -> Path:
        """Write it to ``path``; default: :attr:`path`."""
        path = self.path if path is None else path
        path.parent.joinpath(self.rank_dir.name).mkdir(parents=True, exist_ok=True)
        data = {
            "scenario": self.scenario.model_dump(mode="json"),
            "controller": self.controller.to_dict(),
            "partition": str(self.partition),
            "run_dir": str(self.run_dir),
            "plugins": [[p.path, p.sha256] for p in self.plugins],
            "verify": self.verify,
            "record": _written(self.record),
            "service": _written(self.service),
            "checkpoint": self.checkpoint,
            "resume": self.resume,
        }
        path.write_text(json.dumps(data, indent=2) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Job:
        data = json.loads(path.read_text())
        return cls(
            Scenario.make(**data["scenario"]),
            Spec.parse(data["controller"]),
            Path(data["partition"]),
            Path(data["run_dir"]),
            tuple(PluginFile(*p) for p in data["plugins"]),
            data["verify"],
            _read(data["record"]),
            _read(data["service"]),
            data["checkpoint"],
            data["resume"],
        )

    @property
    def rank_dir(self) -> Path:
        return self.run_dir / "ranks"

    @property
    def checkpoint_dir(self) -> Path:
        return self.run_dir / FOLDER

    def table_path(self, rank: int) -> Path:
        return self.rank_dir / f"rank={rank}.parquet"

    def facts_path(self, rank: int) -> Path:
        return self.rank_dir / f"rank={rank}.json"

    def decisions_path(self, rank: int) -> Path:
        return self.rank_dir / f"decisions-rank={rank}.jsonl"


def _written(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _read(text: str | None) -> Path | None:
    return None if text is None else Path(text)
