"""Is the modelled epoch time that of real runs?

Makes one real run to calibrate from and then the real runs of :data:`CASES`, none of which the
calibration has seen; predicts each from the rows and bytes that it counted, and prints measured and
modelled seconds side by side. The target is 15 %.

    python -I tests/benchmarks/validate_time.py --deps ../shared/data/graphs/debian_deps_build.npz

Other work on the machine takes CPU time from a run. So the cores that were left to each run are
measured (those of the machine less what processes of others used while it trained) and given to the
model; ``quiet`` beside it is the prediction as if all cores had been free. On a quiet machine both
are the same.

Runs that were made before can be predicted from a calibration that was made before:

    python -I tests/benchmarks/validate_time.py --calibration FILE --runs DIRECTORY_OF_RUNS …
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rudder.cli.output import emit, say
from rudder.distdgl.engine import PARTITION_SEED
from rudder.home import Home
from rudder.partition import ensure_partition
from rudder.result import RunResult
from rudder.running import run_tracked
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.timing import Machine, Traffic, calibrate, predict
from rudder.trace import Trace
from rudder.trace.sampling import record_sampled

TARGET = 0.15
CALIBRATION = {
    "graph": "debian", "prefetch_depth": 0, "buffer": 0, "epochs": 9,
    "batch_size_at": {3: 50, 7: 200}, "rate_at": {5: 100},
}  # fmt: skip
_PLAIN = {"prefetch_depth": 0, "buffer": 0}
CASES: tuple[tuple[str, str, float, dict[str, Any]], ...] = (
    ("debian", "none", 100, _PLAIN),
    ("debian", "always", 100, {}),
    ("debian", "static", 50, {}),
    ("debian", "none", 50, _PLAIN),
    ("debian", "fixed", 20, {}),
    ("debian", "always", 0, {}),
    ("deps", "none", 20, _PLAIN),
    ("deps", "always", 20, {}),
    ("deps", "threshold", 50, {}),
    ("deps", "none", 100, _PLAIN),
    ("deps", "always", 0, {}),
)
"""Graph, controller, rate in Mbit/s, and what else differs from the defaults."""


class Others:
    """Cores that processes outside this one's tree use while :attr:`watching`."""

    def __init__(self) -> None:
        self.watching = False
        self._used: list[tuple[float, float]] = []  # cores: by others, by this tree
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def left(self) -> float:
        """End it: cores that were left, on average over the time in which this tree worked.

        At least half of them: a waiting run lets others have all, but gets about that much back
        from the scheduler when its trainers, more than there are cores, go on.
        """
        self._stop.set()
        self._thread.join()
        cores = float(len(os.sched_getaffinity(0)))
        own = sum(mine for _, mine in self._used)
        used = sum(others * mine for others, mine in self._used) / own if own else 0.0
        return max(cores - used, cores / 2)

    def _work(self) -> None:
        period, ticks = 0.5, os.sysconf("SC_CLK_TCK")
        before_all, before = _busy(), _tree()
        while not self._stop.wait(period):
            now_all, now = _busy(), _tree()
            own = sum(used - before.get(pid, used) for pid, used in now.items())
            if self.watching:
                others = max(0, now_all - before_all - own)
                self._used.append((others / ticks / period, own / ticks / period))
            before_all, before = now_all, now


def _busy() -> int:
    """Clock ticks that all cores spent in processes: user, nice and system."""
    return sum(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4]))


def _tree() -> dict[int, int]:
    """Clock ticks used by this process and its descendants, by pid."""
    parents, used = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(entry.name)] = int(fields[1])
        used[int(entry.name)] = int(fields[11]) + int(fields[12])
    own = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in own and pid not in own}:
        own |= grown
    return {pid: used[pid] for pid in own if pid in used}


@dataclass(frozen=True)
class Measured:
    """A real run and the cores that were left to it."""

    run: RunResult
    cores: float


def measure(scenario: Scenario, controller: str, home: Home) -> Measured:
    """One real run."""
    others = Others()

    def watch(phase: str, share: float) -> None:
        others.watching = phase == "train" and 0 < share < 1

    result = run_tracked(scenario, Spec.parse(controller), home, None, watch)
    return Measured(result, others.left())


def traffic_of(scenario: Scenario, home: Home, folder: Path) -> Traffic:
    """Of a sampled trace over the partition that real runs of ``scenario`` use."""
    partition = ensure_partition(
        scenario.graph, scenario.parts, scenario.partition_method, PARTITION_SEED,
        home.partitions, _silent,
    )  # fmt: skip
    if not folder.exists():
        record_sampled(
            scenario.change(epochs=1, rate_at={}, batch_size_at={}, fan_out_at={}),
            partition,
            folder,
            _silent,
        )
    return Traffic.of(Trace.open(folder))


def _silent(phase: str, share: float) -> None:
    """No progress."""


def compare(case: Measured, traffic: Traffic, machine: Machine) -> dict[str, Any]:
    """One row of the table."""
    run, scenario = case.run, case.run.scenario
    seconds = run.summary["epoch_seconds"]
    modelled = predict(replace(machine, cores=case.cores), run, traffic)
    quiet = predict(machine, run, traffic)
    return {
        "graph": Spec.parse(scenario.graph).name,
        "controller": str(run.controller),
        "rate": scenario.rate,
        "depth": scenario.prefetch_depth,
        "cores_left": round(case.cores, 2),
        "measured_s": seconds,
        "modelled_s": modelled.epoch_seconds,
        "error": modelled.epoch_seconds / seconds - 1,
        "quiet_s": quiet.epoch_seconds,
        "run_id": run.summary["run_id"],
    }


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--deps", type=Path, help="the second graph, .npz; needed for new runs")
    parser.add_argument("--calibration", type=Path, help="take this one; make no run for it")
    parser.add_argument("--runs", type=Path, nargs="+", help="predict these; make no runs")
    parser.add_argument("--home", type=Path, help="data directory")
    parser.add_argument("--epochs", type=int, default=3, help="of each run; the first is left out")
    parser.add_argument("--seed", type=int, default=0, help="of all runs")
    parser.add_argument("--out", type=Path, help="write the calibration there")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    home = Home.resolve(given.home)
    if given.runs and not given.calibration:
        parser.error("--runs needs --calibration")
    if not given.runs and not given.deps:
        parser.error("new runs need --deps")
    machine = Machine.load(given.calibration) if given.calibration else None
    table = made_before(given.runs, machine, home) if given.runs else new_runs(given, machine, home)
    errors = [abs(row["error"]) for row in table]
    if given.json:
        emit({"runs": table, "worst_error": max(errors)}, as_json=True)
    else:
        emit(table, as_json=False, title="measured and modelled seconds of an epoch")
    within = sum(error <= TARGET for error in errors)
    say(f"{within} of {len(table)} within {TARGET:.0%}; worst {max(errors):.1%}")


def made_before(folders: Sequence[Path], machine: Machine, home: Home) -> list[dict[str, Any]]:
    """Predictions of all runs under some folders, but the calibrating one."""
    known: dict[str, Traffic] = {}
    table = []
    for path in sorted(path for folder in folders for path in folder.rglob("run.json")):
        run = RunResult.load(path.parent)
        scenario = run.scenario
        own = machine.source["run_id"] == run.summary["run_id"]
        if own or run.summary["epoch_seconds"] is None or scenario.epochs < 2:
            continue
        name = f"{Spec.parse(scenario.graph).name}-{scenario.parts}-{scenario.batch_size}"
        if name not in known:
            place = home.traces / f"validate-{name}.trace"
            known[name] = traffic_of(scenario, home, place)
        table.append(compare(Measured(run, machine.cores), known[name], machine))
    return table


def new_runs(
    given: argparse.Namespace, machine: Machine | None, home: Home
) -> list[dict[str, Any]]:
    """Makes and predicts the runs of :data:`CASES`."""
    graphs = {"debian": "debian", "deps": f"custom:npz={given.deps.resolve()}"}
    traffic = {
        name: traffic_of(Scenario.make(graph=graph), home, home.traces / f"validate-{name}.trace")
        for name, graph in graphs.items()
    }
    if machine is None:
        calibrating = measure(Scenario.make(**CALIBRATION, seed=given.seed), "none", home)
        machine = calibrate(calibrating.run, traffic["debian"], cores=calibrating.cores)
        machine = replace(machine, cores=float(len(os.sched_getaffinity(0))))
        if given.out:
            machine.save(given.out)
        say(f"calibrated from {machine.source['run_id']}, {calibrating.cores:.2f} cores left to it")
    table = []
    for graph, controller, rate, fields in CASES:
        scenario = Scenario.make(
            graph=graphs[graph], rate=rate, epochs=given.epochs, seed=given.seed, **fields
        )
        table.append(compare(measure(scenario, controller, home), traffic[graph], machine))
        say(json.dumps(table[-1]))
    return table


if __name__ == "__main__":
    main()
