"""What the replay studies share: sampled traces, each made once, and Markdown tables."""

from __future__ import annotations

import argparse
import fcntl
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudder.distdgl.engine import PARTITION_SEED
from rudder.engine import RunOptions
from rudder.home import Home
from rudder.partition import ensure_partition
from rudder.replay.engine import MakeTime, ReplayEngine, recorded_time
from rudder.result import RunResult
from rudder.running import new_run_id
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.trace import Trace
from rudder.trace.sampling import record_sampled

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "graphs"


@dataclass(frozen=True)
class Case:
    """A graph cut into parts, as the studies take it.

    Attributes:
        label: in tables.
        graph: dataset spec.
        method: partitioner.
        batch_size: seeds per minibatch.
        epochs: as many as make about 130 minibatches per trainer.
    """

    label: str
    graph: str
    method: str
    batch_size: int
    epochs: int

    def scenario(self, **fields: Any) -> Scenario:
        return Scenario.make(
            **{
                "graph": self.graph, "partition_method": self.method,
                "batch_size": self.batch_size, "epochs": self.epochs, **fields,
            }
        )  # fmt: skip


def _silent(phase: str, share: float) -> None:
    """No progress is shown."""


def _stored(name: str) -> str:
    return f"custom:npz={DATA / name}.npz"


CASES = {
    "tolokers": Case("tolokers", _stored("tolokers"), "metis", 100, 9),
    "wordnet": Case("wordnet", _stored("wordnet"), "metis", 500, 5),
    "wordnet-random": Case("wordnet, random parts", _stored("wordnet"), "random", 500, 5),
    "debian_deps_build": Case(
        "debian_deps_build", _stored("debian_deps_build") + ",add_reverse=true", "metis", 500, 8
    ),
    "debian_deps_build-directed": Case(
        "debian_deps_build, directed", _stored("debian_deps_build"), "metis", 500, 8
    ),
    "debian": Case("debian", "debian", "metis", 500, 14),
}


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    made.add_argument("--home", type=Path, help="keeps partitions and traces between runs")
    made.add_argument("--json", action="store_true")
    return made


def home(given: Path | None) -> Home:
    return Home.resolve(given or Path(tempfile.mkdtemp(prefix="rudder-study-")))


def sampled(place: Home, scenario: Scenario) -> Trace:
    """The trace of a scenario, by the in-process sampler; made once, whoever else wants it too."""
    folder = place.traces / f"sampled-{scenario.digest()}.trace"
    if not folder.is_dir():
        with folder.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _sample(place, scenario, folder)
    return Trace.open(folder)


def _sample(place: Home, scenario: Scenario, folder: Path) -> None:
    """Whole or not at all."""
    partition = ensure_partition(
        scenario.graph, scenario.parts, scenario.partition_method, PARTITION_SEED,
        place.partitions, _silent,
    )  # fmt: skip
    scratch = folder.with_name(f"part-{folder.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    record_sampled(scenario, partition, scratch, _silent)
    scratch.rename(folder)


def replay(
    place: Home, trace: Trace, controller: str, *, time: MakeTime = recorded_time, **fields: Any
) -> dict[str, Any]:
    """Summary of one replay."""
    return replayed(place, trace, controller, time=time, **fields).summary


def replayed(
    place: Home, trace: Trace, controller: str, *, time: MakeTime = recorded_time, **fields: Any
) -> RunResult:
    """One replay; nothing of it is kept on disk."""
    engine = ReplayEngine(trace, make_time=time, record_decisions=False)
    with tempfile.TemporaryDirectory(prefix="rudder-replay-") as folder:
        options = RunOptions(place, Path(folder) / new_run_id())
        return engine.run(engine.scenario.change(**fields), Spec.parse(controller), options)


def show(tables: Mapping[str, Sequence[Mapping[str, Any]]], *, as_json: bool) -> None:
    """Print tables, each under its title: Markdown, or JSON."""
    if as_json:
        print(json.dumps(tables, indent=2))
        return
    for title, rows in tables.items():
        if rows:
            print(f"\n{title}\n")
            _markdown(rows)


def _markdown(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = list(rows[0])
    print(f"| {' | '.join(columns)} |")
    print(f"|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(_cell(row[column]) for column in columns)} |")


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
