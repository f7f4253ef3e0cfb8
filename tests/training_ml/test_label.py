"""Labels: what is measured of a run, what the rules make of it, and the command."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rudder_training_ml.collection import CollectedRun, Collection, Request
from rudder_training_ml.examples import SCHEMA, ExampleTable, examples_path
from rudder_training_ml.label_report import report
from rudder_training_ml.labelling import RULES, label, parts_of
from rudder_training_ml.measuring import MEASURED, Measured, access_change, measure, measure_all

from rudder.buffer import PersistentBuffer
from rudder.cli.app import main
from rudder.controller import Capabilities
from rudder.decision import Decision
from rudder.engine import RunOptions
from rudder.errors import CollectionError, SpecError, TrainingDataError, UnknownNameError
from rudder.home import Home
from rudder.observation import feature_names, feature_vector
from rudder.registries import CONTROLLERS, POLICIES
from rudder.replay.engine import ReplayEngine
from rudder.replay.foresight import ForesightController
from rudder.replay.oracle import KEEP, REPLACE
from rudder.result import RunResult
from rudder.scenario import Scenario
from rudder.spec import Spec
from rudder.steering import rebuild
from rudder.trace import Manifest, RankFacts, Trace, TraceRow, TraceWriter, start_trace

PART, PARTS, LENGTH, CAPACITY, HORIZON = 200, 2, 48, 60, 8
POLICY = "massivegnn:alpha=0.05,interval=3"
SCHEDULES = ("random:p=0.4", "threshold:target=0.9,drop=0.02,limit=0.5")


def make_trace(folder: Path, seed: int, name: str) -> Trace:
    """Two trainers whose popular remote nodes move on slowly."""
    rng = np.random.default_rng(seed)
    scenario = Scenario.make(graph="tiny", parts=PARTS, epochs=2, batch_size=2, seed=seed)
    manifest = Manifest(
        name, "sampler", scenario, "graph", "partition", PART * PARTS, 4000, 400,
        (PART,) * PARTS, (150,) * PARTS,
    )  # fmt: skip
    halos = [np.arange(PART, PART + 150), np.arange(150)]
    start_trace(folder, manifest, halos, np.arange(PART * PARTS, 0, -1, dtype=np.int32))
    for rank in range(PARTS):
        first = PART * (1 - rank)
        with TraceWriter(folder, manifest, RankFacts(rank, (LENGTH // 2,) * 2, "seeds")) as writer:
            for step in range(LENGTH):
                middle = 40 + 2 * step
                drawn = np.rint(rng.normal(middle, 25, 50)).astype(np.int64)
                ids = np.unique(np.clip(drawn, 0, PART - 1)) + first
                writer.append(TraceRow(step // (LENGTH // 2), step, ids, 5, 2))
    return Trace.open(folder)


def replay(
    home: Home, trace: Trace, controller: str | Spec, run_dir: Path, **fields: Any
) -> RunResult:
    engine = ReplayEngine(trace)
    scenario = engine.scenario.change(
        **{"buffer": CAPACITY, "policy": POLICY, "mode": "sync", "rate": 1.0, **fields}
    )
    return engine.run(scenario, Spec.parse(controller), RunOptions(home, run_dir))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """A collection of one scenario, four seeds and two schedules."""
    home = Home.resolve(tmp_path_factory.mktemp("label"))
    folder = home.collections / "small"
    runs = []
    for seed in range(4):
        trace = make_trace(home.traces / f"{seed}.trace", seed, f"trace{seed}")
        for at, schedule in enumerate(SCHEDULES):
            run = f"drifting-seed={seed}-{at}"
            replay(home, trace, schedule, folder / "runs" / run, seed=seed)
            runs.append(
                CollectedRun(
                    run,
                    "drifting",
                    "id_train",
                    seed,
                    schedule,
                    "digest",
                    "tiny",
                    f"trace{seed}",
                    f"traces/{seed}.trace",
                    f"runs/{run}",
                )
            )
    request = Request("train", "suite", "replay", tuple(range(4)), SCHEDULES)
    made = Collection(folder, home, "small", request, {}, tuple(runs))
    made.save()
    return made


@pytest.fixture
def collection(made: Collection, tmp_path: Path) -> Collection:
    """A copy of it that a test may spoil."""
    home = Home.resolve(tmp_path / "copy")
    shutil.copytree(made.home.root, home.root, dirs_exist_ok=True)
    return Collection.open("small", home)


@pytest.fixture(scope="module")
def measured(made: Collection) -> list[Measured]:
    return [measure(made.run_dir(run), made.trace(run), HORIZON) for run in made.runs]


def steps_of(result: RunResult, rank: int, name: str) -> list[Any]:
    table = result.minibatches
    return table.column(name).to_numpy()[table.column("rank").to_numpy() == rank].tolist()


@pytest.mark.parametrize("at", [0, 1])
def test_both_branches_are_what_whole_replays_of_them_fetch(
    made: Collection, measured: list[Measured], tmp_path: Path, at: int
) -> None:
    """Each branch is made anew: the run's answers up to there, this one, and keep from then on."""
    run = made.runs[at]
    trace = Trace.open(made.trace(run))
    answers = [
        {"rank": d["rank"], "applied_at": d["applied_at"], "decision": d["decision"]}
        for d in RunResult.load(made.run_dir(run)).decisions
        if d["applied_at"] is not None
    ]
    assert sum(a["decision"]["replace"] for a in answers) > 8
    rows = measured[at].table.to_pylist()
    assert len(rows) == len(answers) == PARTS * (LENGTH - 1)
    compared = 0
    for step in range(1, LENGTH, 5):
        for decision, column in ((KEEP, "keep_fetched"), (REPLACE, "replace_fetched")):
            script = tmp_path / f"{step}-{column}.jsonl"
            lines = [a for a in answers if a["applied_at"] < step] + [
                {"rank": rank, "applied_at": step, "decision": dataclasses.asdict(decision)}
                for rank in range(PARTS)
            ]
            script.write_text("".join(json.dumps(line) + "\n" for line in lines))
            spec = Spec("recorded", {"run": str(script)})
            branch = replay(made.home, trace, spec, tmp_path / "run", seed=run.seed)
            for rank in range(PARTS):
                [row] = [r for r in rows if r["rank"] == rank and r["minibatch"] == step]
                fetched = steps_of(branch, rank, "fetched")[step : step + HORIZON]
                assert row[column] == sum(fetched)
                assert row["looked"] == len(fetched)
                compared += 1
    assert compared == 2 * PARTS * 10
    assert any(row["keep_fetched"] < row["replace_fetched"] for row in rows)
    assert any(row["keep_fetched"] > row["replace_fetched"] for row in rows)


def test_what_followed_is_counted_from_the_minibatches_themselves(
    made: Collection, measured: list[Measured]
) -> None:
    """The windows of the context; nodes that left by a buffer of this test's own."""
    run, result = made.runs[0], RunResult.load(made.run_dir(made.runs[0]))
    trace = Trace.open(made.trace(run))
    judged = 0
    for rank in range(PARTS):
        accesses = [set(row.remote_ids.tolist()) for row in trace.minibatches(rank)]
        rows = {r["minibatch"]: r for r in measured[0].table.to_pylist() if r["rank"] == rank}
        hits, sampled, fetch_s = (
            np.array(steps_of(result, rank, name)) for name in ("hits", "remote_sampled", "fetch_s")
        )
        buffer = PersistentBuffer(CAPACITY, 0, POLICIES.build(POLICY))
        buffer.fill(trace.fill_ids(rank, "degree", CAPACITY, run.seed))
        for m, ids in enumerate(accesses):
            row = rows.get(m)
            before = set(buffer.ids().tolist())
            decision = None if row is None else Decision(row["replace"])
            buffer.commit(buffer.plan(np.array(sorted(ids)), decision))
            if row is None or not row["window"]:
                continue
            wide = row["window"]
            was, now = slice(m - wide, m), slice(m, m + wide)
            rate = [hits[w].sum() / sampled[w].sum() for w in (was, now)]
            assert row["effect_hit_rate"] == pytest.approx(rate[1] - rate[0], abs=1e-12)
            change = fetch_s[now].mean() - fetch_s[was].mean()
            assert row["effect_fetch_s"] == pytest.approx(change, abs=1e-12)
            left = before - set(buffer.ids().tolist())
            assert row["replaced"] == len(left)  # the buffer is full throughout
            after = accesses[m + 1 : m + 1 + wide]
            if not left or not after:
                assert np.isnan(row["effect_left_access"])
                continue
            counts = [
                np.mean([len(left & minibatch) / len(left) for minibatch in some])
                for some in (accesses[m + 1 - wide : m + 1], after)
            ]
            assert row["effect_left_access"] == pytest.approx(counts[1] - counts[0], abs=1e-12)
            judged += counts[1] != counts[0]
    assert judged > 8


def test_features_are_those_of_the_observation(made: Collection, measured: list[Measured]) -> None:
    table = measured[0].table
    asked = [a for a in rebuild(made.run_dir(made.runs[0])) if a.applied_at is not None]
    assert [(a.rank, a.observation.index, a.applied_at, a.decision.replace) for a in asked] == list(
        zip(*(table.column(n).to_pylist() for n in ("rank", "question", "minibatch", "replace")),
            strict=True)
    )  # fmt: skip
    rows = zip(*(table.column(name).to_pylist() for name in feature_names()), strict=True)
    assert [list(row) for row in rows] == [feature_vector(a.observation) for a in asked]
    assert all(m.unapplied == 0 and m.policy == POLICY for m in measured)


def test_accesses_of_nodes_that_left() -> None:
    left = np.array([True, False, True, False])

    def minibatches(*ids: Sequence[int]) -> list[TraceRow]:
        return [TraceRow(0, 0, np.array(some, np.int64), 0, 0) for some in ids]

    # before: 1 of 2 x 2; after: 3 of 2 x 2
    assert access_change(left, minibatches([0, 1], [3]), minibatches([0, 2], [1, 2])) == 0.5
    assert np.isnan(access_change(left, minibatches([0]), []))
    assert np.isnan(access_change(~left & left, minibatches([0]), minibatches([0])))


def test_a_trace_that_is_not_the_runs_is_told(collection: Collection) -> None:
    first, other = collection.runs[0], collection.runs[-1]
    with pytest.raises(CollectionError, match=r"is not what its trace .* gives: rank 0"):
        measure(collection.run_dir(first), collection.trace(other), HORIZON)


def test_a_trace_that_lost_its_end_is_told(collection: Collection, tmp_path: Path) -> None:
    folder = collection.trace(collection.runs[0])
    for rank in range(PARTS):
        facts = folder / f"rank={rank}" / "rank.json"
        facts.write_text(json.dumps({**json.loads(facts.read_text()), "rows": None}))
    [part] = (folder / "rank=0").glob("part-*.parquet")
    table = pq.read_table(part)
    pq.write_table(table.slice(0, LENGTH - 3), part, write_page_checksum=True)
    with pytest.raises(CollectionError, match=rf"{LENGTH} minibatches of rank 0, its trace"):
        measure(collection.run_dir(collection.runs[0]), folder, HORIZON)


def same(one: Measured, other: Measured) -> bool:
    """Equal, NaN too."""
    pairs = ((m.table.column(name).to_numpy() for m in (one, other)) for name in MEASURED.names)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def test_runs_are_measured_once_in_any_number_of_processes(
    collection: Collection, measured: list[Measured]
) -> None:
    told: list[float] = []

    def measure_now(jobs: int) -> list[Measured]:
        return measure_all(collection, HORIZON, jobs, lambda phase, share: told.append(share))

    assert all(same(a, b) for a, b in zip(measure_now(2), measured, strict=True))
    assert told == pytest.approx([(k + 1) / len(measured) for k in range(len(measured))])
    folder = collection.folder / "measured" / f"horizon={HORIZON}"
    assert sorted(p.stem for p in folder.iterdir()) == sorted(r.id for r in collection.runs)

    told.clear()
    assert all(same(a, b) for a, b in zip(measure_now(1), measured, strict=True))
    assert told == []
    # One is damaged, and one is of a run that was made anew.
    (folder / f"{collection.runs[0].id}.parquet").write_bytes(b"no parquet")
    run = collection.runs[3]
    trace = Trace.open(collection.trace(run))
    replay(collection.home, trace, "always", collection.run_dir(run), seed=run.seed)
    found = measure_now(1)
    assert told == [0.5, 1.0]
    assert same(found[0], measured[0])
    assert set(found[3].table.column("replace").to_pylist()) == {True}


def columns(**given: Sequence[Any]) -> dict[str, Any]:
    """Measured columns; those that are not given are 0."""
    count = len(next(iter(given.values())))
    empty = {field.name: np.zeros(count, field.type.to_pandas_dtype()) for field in MEASURED}
    return {**empty, **{name: np.array(values) for name, values in given.items()}}


def test_counterfactual_labels() -> None:
    found = RULES.build("counterfactual:horizon=32,tie=0.01").judge(
        columns(
            looked=[32, 32, 32, 32, 32, 16, 15, 32],
            keep_fetched=[1000, 1000, 1000, 1000, 0, 100, 100, 0],
            replace_fetched=[900, 1250, 991, 990, 50, 90, 90, 0],
        ),
        np.ones(8, np.bool_),
    )
    assert found.dropped.tolist() == ["", "", "tie", "", "", "", "cut short by the end", "tie"]
    assert found.gain.tolist() == [0.1, -0.2, 0.009, 0.01, -1.0, 0.1, 0.1, 0.0]
    assert found.weight.tolist() == np.abs(found.gain).tolist()


def test_equal_branches_are_a_tie_whatever_the_limit() -> None:
    given = columns(looked=[32, 32], keep_fetched=[70, 70], replace_fetched=[70, 69])
    found = RULES.build("counterfactual:tie=0").judge(given, np.ones(2, np.bool_))
    assert found.dropped.tolist() == ["tie", ""]


PAPER: dict[str, Sequence[Any]] = {
    "replace": [True] * 8 + [False, True, True, True],
    "replaced": [3] * 8 + [0, 0, 3, 3],
    "window": [4] * 8 + [4, 4, 0, 4],
    "effect_hit_rate": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 9.0, -9.0, 7.0, 7.0, np.nan, 7.0],
    "effect_left_access": [1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 0.0, 0.0, np.nan, np.nan, np.nan, np.nan],
    "effect_fetch_s": [2.0] * 8 + [9.0, 9.0, np.nan, 9.0],
}


def test_paper_labels() -> None:
    train = np.array([True] * 6 + [False] * 2 + [True] * 4)
    found = RULES.build("paper").judge(columns(**PAPER), train)
    assert found.dropped.tolist() == [""] * 8 + [
        "kept", "nothing replaced", "never settled", "cut short by the end"
    ]  # fmt: skip
    hits, left = (np.array(PAPER[n][:8]) for n in ("effect_hit_rate", "effect_left_access"))
    # Mean and deviation of the six rows that are of the training part and judged; the seconds do
    # not vary and say nothing.
    wanted = (hits - 0.25) / hits[:6].std() - (left - 14 / 6) / left[:6].std()
    assert found.gain[:8] == pytest.approx(wanted)
    assert np.isnan(found.gain[8:]).all()
    assert found.weight.tolist() == [1.0] * 8 + [0.0] * 4
    assert {bool(g > 0) for g in found.gain[:6]} == {True, False}


def test_what_is_held_out_changes_no_other_label() -> None:
    train = np.array([True] * 6 + [False] * 2 + [True] * 4)
    one = RULES.build("paper").judge(columns(**PAPER), train)
    moved = {**PAPER, "effect_fetch_s": [2.0] * 6 + [500.0, -500.0] + [9.0, 9.0, np.nan, 9.0]}
    other = RULES.build("paper").judge(columns(**moved), train)
    assert other.gain[:6].tolist() == one.gain[:6].tolist()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("counterfactual:horizon=0", "horizon must be a count from 1, found 0"),
        ("counterfactual:tie=1", "tie must lie in"),
        ("counterfactual:horizn=3", "did you mean 'horizon'"),
        ("paper:horizon=3", "no parameter 'horizon'"),
    ],
)
def test_a_rule_out_of_range_is_told(spec: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        RULES.build(spec)


def test_an_unknown_rule_is_told() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'paper'"):
        RULES.build("papper")


def changed(collection: Collection, change: Callable[[CollectedRun], CollectedRun]) -> Collection:
    return dataclasses.replace(collection, runs=tuple(map(change, collection.runs)))


def test_parts_are_whole_seeds(collection: Collection) -> None:
    parts = dict(zip((r.seed for r in collection.runs), parts_of(collection), strict=True))
    assert parts == {0: "train", 1: "train", 2: "validation", 3: "test"}
    held = changed(collection, lambda run: dataclasses.replace(run, split="id_val"))
    assert set(parts_of(held)) == {"test"}


def test_too_few_seeds_are_told(collection: Collection) -> None:
    few = changed(collection, lambda run: dataclasses.replace(run, seed=run.seed % 2))
    with pytest.raises(TrainingDataError, match=r"has the seeds \[0, 1\].*3 at least"):
        parts_of(few)


def test_examples_hold_what_was_measured_and_judged(
    made: Collection, measured: list[Measured]
) -> None:
    table = label(made, measured, Spec.parse(f"counterfactual:horizon={HORIZON}"))
    assert str(table.rule) == f"counterfactual:horizon={HORIZON},tie=0.002"
    assert table.collection == made.digest()
    everything = pa.concat_tables(m.table for m in measured)
    for name in ("rank", "question", "minibatch", "replace", *feature_names()):
        assert table.table.column(name).equals(everything.column(name))
    lengths = [m.table.num_rows for m in measured]
    ids = [run.id for run, count in zip(made.runs, lengths, strict=True) for _ in range(count)]
    assert table.column("run").tolist() == ids
    assert set(table.column("policy")) == {POLICY}
    keep, replace = (everything.column(f"{n}_fetched").to_numpy() for n in ("keep", "replace"))
    kept = table.kept()
    assert (table.column("label")[kept] == (keep > replace)[kept]).all()
    weight = table.column("weight")
    assert weight[table.kept("train")].mean() == pytest.approx(1.0)
    scale = weight[kept] / np.abs(table.column("gain")[kept])
    assert scale == pytest.approx(scale[0])
    assert (weight[~kept] == 0).all()
    assert table.counts() == {
        "train": int(table.kept("train").sum()),
        "validation": int(table.kept("validation").sum()),
        "test": int(table.kept("test").sum()),
        "dropped: cut short by the end": len(made.runs) * PARTS * (HORIZON // 2 - 1),
        "dropped: tie": int((table.column("dropped") == "tie").sum()),
    }


def test_test_scenarios_leave_out_accesses_that_are_trained_on(
    made: Collection, measured: list[Measured]
) -> None:
    """Of one access trace, the first run is of a training scenario and the second is not."""
    held = {run.id for run in made.runs[1::2]}
    mixed = changed(
        made,
        lambda run: dataclasses.replace(
            run, scenario="other", split="id_val" if run.id in held else run.split
        ),
    )
    table = label(mixed, measured, Spec.parse(f"counterfactual:horizon={HORIZON}"))
    own = np.isin(table.column("run"), sorted(held))
    left_out = table.column("dropped") == "accesses are trained on"
    assert left_out.tolist() == (own & (table.column("seed") < 3)).tolist()
    assert set(table.column("part")[own]) == {"test"}
    assert table.kept("test")[own].any()
    table.save(examples_path(made.folder, "mixed"))  # no group is in two parts


def test_replacing_by_the_labels_never_costs_against_keeping(
    made: Collection, tmp_path: Path
) -> None:
    """With a horizon to the end of the run, each replacement lowers what keeping from there on
    would fetch, so that all of them together cannot raise it."""
    CONTROLLERS.register("follows-labels-of-tests", FollowsLabels)
    gained = 0
    for run in made.runs[::2]:
        trace = Trace.open(made.trace(run))
        never, follows = (
            replay(made.home, trace, name, tmp_path / name, seed=run.seed)
            for name in ("random:p=0", "follows-labels-of-tests")
        )
        for rank in range(PARTS):
            rows = [sum(steps_of(result, rank, "fetched")) for result in (never, follows)]
            assert rows[1] <= rows[0]
            gained += rows[0] - rows[1]
    assert gained > 0


class FollowsLabels(ForesightController):
    tags = Capabilities(replay_only=True)

    def foresee(self, future: Any) -> None:
        self._future = future

    def _decide(self, observation: Any) -> Decision:
        keep, replace = (
            self._future.roll_out(first, KEEP, LENGTH).fetched for first in (KEEP, REPLACE)
        )
        return Decision(replace=replace < keep)


def balanced(
    made: Collection, labels: Sequence[int | None], parts: Sequence[str], rule: str
) -> ExampleTable:
    """A table of one run's questions with these labels."""
    count = len(labels)
    given = {
        "group": [f"trace-{part}" for part in parts], "part": list(parts),
        "scenario": ["drifting"] * count, "label": list(labels),
        "weight": [1.0] * count, "gain": [0.1] * count,
        "dropped": ["" if found is not None else "tie" for found in labels],
    }  # fmt: skip
    blank = {field.name: pa.nulls(count, field.type) for field in SCHEMA if field.name not in given}
    table = pa.table({**blank, **given}).select(SCHEMA.names).cast(SCHEMA)
    return ExampleTable(table, RULES.resolve(rule), made.digest())


def test_a_rare_class_is_told_with_what_to_change(made: Collection) -> None:
    parts = ["train"] * 40 + ["validation"] * 4 + ["test"] * 2
    rare = balanced(made, [1, *[0] * 39, 1, 0, 1, 0, None, None], parts, "counterfactual")
    one, two = report(made, [rare], 0)["rules"][0]["notes"]
    assert "only 2.5% of the 40 train examples say replace, less than 10%" in one
    assert "Collect more like drifting (2%)" in one
    assert "--rule counterfactual:horizon=64" in one
    assert "the test part has no examples" in two
    other = balanced(made, [*[1] * 40, 1, 0, 1, 0, 1, 0], parts, "paper")
    [note] = report(made, [other], 0)["rules"][0]["notes"]
    assert "only 0.0% of the 40 train examples say keep" in note
    assert "--rule" not in note


def test_agreement_counts_what_both_rules_label(made: Collection) -> None:
    parts = ["train"] * 6 + ["validation"] * 2
    one = balanced(made, [1, 1, 0, 0, 1, None, 1, 1], parts, "counterfactual")
    two = balanced(made, [1, 0, 0, 0, None, 1, 1, 1], parts, "paper")
    rows = {row["part"]: row for row in report(made, [one, two], 0)["agreement"]}
    assert rows["all"]["examples"] == 6
    assert rows["all"]["agree"] == pytest.approx(5 / 6)
    # By chance: 4/6 x 3/6 for replace and 2/6 x 3/6 for keep.
    assert rows["all"]["kappa"] == pytest.approx((5 / 6 - 0.5) / 0.5)
    assert rows["train"]["agree"] == 0.75
    assert rows["validation"] == {
        "rules": "counterfactual, paper", "part": "validation",
        "examples": 2, "agree": 1.0, "kappa": None,
    }  # fmt: skip
    assert rows["test"]["agree"] is None


@pytest.fixture
def rudder(collection: Collection, capfd: pytest.CaptureFixture[str]) -> Iterator[Any]:
    def run(*arguments: str) -> tuple[int, str]:
        out = StringIO()
        with redirect_stdout(out):
            code = main([*arguments, "--home", str(collection.home.root)])
        return code, out.getvalue()

    return run


def test_the_command_labels_by_both_rules(collection: Collection, rudder: Any) -> None:
    code, out = rudder("label", "--json", "--jobs", "1")
    assert code == 0
    told = json.loads(out)
    assert told["collection"] == "small"
    assert told["questions"] == len(collection.runs) * PARTS * (LENGTH - 1)
    assert [rule["rule"].partition(":")[0] for rule in told["rules"]] == ["counterfactual", "paper"]
    for rule in told["rules"]:
        table = ExampleTable.read(Path(rule["file"]), collection.digest())
        assert str(table.rule) == rule["rule"]
        assert rule["examples"] == int(table.kept().sum())
        assert rule["examples"] + sum(rule["dropped"].values()) == told["questions"]
        assert sum(p["examples"] for p in rule["parts"].values()) == rule["examples"]
        assert list(rule["scenarios"]) == ["drifting"]
    assert told["rules"][1]["dropped"]["kept"] > 0
    assert 0 < told["agreement"][0]["examples"] < told["rules"][1]["examples"] + 1
    assert not list(collection.folder.rglob("*.part"))


def test_the_command_takes_one_rule_with_its_parameters(
    collection: Collection, rudder: Any
) -> None:
    code, out = rudder("label", "small", "--rule", "counterfactual:horizon=8", "--jobs", "1")
    assert code == 0
    assert "counterfactual:horizon=8,tie=0.002" in out
    assert "replace share" in out
    assert not examples_path(collection.folder, "paper").exists()
    table = ExampleTable.read(examples_path(collection.folder, "counterfactual"))
    assert table.rule.params["horizon"] == 8


def test_the_command_tells_wrong_use(
    collection: Collection, rudder: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    assert rudder("label", "--rule", "papper")[0] == 2
    assert "did you mean 'paper'" in capfd.readouterr().err
    assert rudder("label", "nothing-such")[0] == 2
    assert not (collection.folder / "measured").exists()
