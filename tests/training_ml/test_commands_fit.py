"""``rudder fit`` and ``rudder models``, from a labelled collection to the registry."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rudder_training_ml import registry
from rudder_training_ml.checks import TEST
from rudder_training_ml.collection import CollectedRun, Collection, Request, begin
from rudder_training_ml.examples import SCHEMA, ExampleTable, examples_path
from rudder_training_ml.material import material_of

from rudder.cli.app import main
from rudder.home import Home
from rudder.model import FittedModel, ModelManifest
from rudder.observation import feature_names
from rudder.spec import Spec
from rudder.tracking.store import Store

RULE = Spec.parse("counterfactual:horizon=32,tie=0.002")
SEEDS = (0, 1, 2, 3)
ROWS = 30
Run = Callable[..., tuple[int, Any, str]]


def make_collection(home: Home, name: str = "train") -> Collection:
    """Two scenarios and one that is for testing only, four seeds each; labels by ``hit_rate``."""
    folder = home.collections / name
    request = Request("train", "0123456789abcdef", "replay", SEEDS, ("random:p=0.5",))
    begin(folder, request)
    runs = [
        CollectedRun(
            f"{scenario}-{seed}", scenario, split, seed, "random:p=0.5", f"digest-{scenario}",
            graph, f"{scenario}-trace-{seed}", f"traces/{scenario}.trace",
            f"runs/{scenario}-{seed}",
        )
        for scenario, split, graph in (
            ("plain", "id_train", "debian"), ("drifting", "id_train", "sbm"),
            ("held", "id_val", "rmat"),
        )
        for seed in SEEDS
    ]  # fmt: skip
    collection = Collection(folder, home, name, request, {"numpy": "1"}, tuple(runs))
    for run in runs:
        collection.run_dir(run).mkdir()
        (collection.run_dir(run) / "run.json").write_text("{}")
    collection.save()
    random = np.random.default_rng(3)
    part = {0: "train", 1: "train", 2: "validation", 3: TEST}
    rows = []
    for run in runs:
        for question in range(ROWS):
            features = {name: random.random() for name in feature_names()}
            right = (features["hit_rate"] < 0.5) ^ (random.random() < 0.1)
            tie = question == 7
            gain = random.uniform(0.1, 1) * (1 if right else -1)
            rows.append(
                {
                    "run": run.id, "group": run.trace_id, "scenario": run.scenario,
                    "schedule": run.schedule, "policy": "score", "seed": run.seed, "rank": 0,
                    "question": question, "minibatch": question + 1, "replace": True,
                    "part": part[run.seed] if run.split == "id_train" else TEST, **features,
                    "label": None if tie else int(right), "weight": 0.0 if tie else abs(gain),
                    "gain": gain, "dropped": "tie" if tie else "",
                }
            )  # fmt: skip
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    ExampleTable(table, RULE, collection.digest()).save(examples_path(folder, RULE.name))
    return collection


@pytest.fixture
def collection(home: Home) -> Collection:
    return make_collection(home)


@pytest.fixture
def run(
    stump: Path, home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """``run("fit", …)``: exit code, JSON, stderr; without MLflow unless ``track``."""
    monkeypatch.setenv("RUDDER_HOME", str(home.root))

    def call(*arguments: str, track: bool = False) -> tuple[int, Any, str]:
        extra = ["--no-track"] if arguments[0] == "fit" and not track else []
        capsys.readouterr()
        code = main([*arguments, *extra, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return call


def test_training_facts_are_those_of_what_fitting_sees(collection: Collection) -> None:
    material = material_of(collection, RULE.name)
    training = material.training
    assert training.scenarios == {"plain": "digest-plain", "drifting": "digest-drifting"}
    assert training.graphs == ("debian", "sbm")
    assert training.seeds == (0, 1, 2)
    assert len(training.traces) == 6
    assert not [trace for trace in training.traces if "held" in trace or trace.endswith("-3")]
    assert training.collection == collection.digest()
    assert training.label == str(RULE)
    kept = ROWS - 1
    assert training.examples == {
        "train": 4 * kept, "validation": 2 * kept, "test": 6 * kept, "dropped: tie": 12,
    }  # fmt: skip
    assert {name: len(examples) for name, examples in material.parts.items()} == {
        "train": 4 * kept, "validation": 2 * kept, "test": 6 * kept,
    }  # fmt: skip


def test_a_fit_is_a_model_and_a_row(run: Run, home: Home, collection: Collection) -> None:
    code, rows, err = run("fit", "stump:steep=9.0")
    assert code == 0, err
    assert [row["name"] for row in rows[:1]] == ["stump"]
    assert [row["kind"] for row in rows] == ["model", "baseline", "baseline"]
    assert rows[1]["name"].startswith("majority class: ")
    assert rows[2]["name"].startswith("one feature: hit_rate < 0.")
    manifest = ModelManifest.read(home.models / "stump")
    assert rows[0]["accuracy"] == manifest.metrics["accuracy"] > 0.8
    assert rows[0]["captured"] == manifest.metrics["captured"] > 0.5
    assert rows[1]["accuracy"] == manifest.metrics["majority_accuracy"]
    assert rows[2]["auc"] == manifest.metrics["single_auc"]
    assert rows[0]["folder"] == str(home.models / "stump")
    assert rows[0]["registered"] is None
    assert manifest.spec == Spec("stump", {"column": 0, "steep": 9.0})
    assert manifest.training.suite == "train"


def test_a_table_is_for_people(
    run: Run, home: Home, collection: Collection, capsys: pytest.CaptureFixture[str]
) -> None:
    run("models")
    assert main(["fit", "stump", "--no-track", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert "train, labelled by counterfactual:horizon=32,tie=0.002" in out
    header = next(line for line in out.splitlines() if line.startswith("name"))
    assert header.split() == [
        "name", "accuracy", "balanced", "accuracy", "f1", "auc", "balance", "predicted",
        "captured", "seconds", "kB",
    ]  # fmt: skip
    assert "one feature: hit_rate <" in out
    assert "examples: 116 train, 58 validation, 174 test, 12 dropped: tie" in err
    assert str(home.models) in err


def test_options_reach_the_fit(
    run: Run, home: Home, collection: Collection, tmp_path: Path
) -> None:
    code, _, err = run(
        "fit", "stump", "--collection", str(collection.folder), "--rule", "counterfactual",
        "--columns", "progress, hit_rate", "--seed", "4", "--name", "mine", "--threshold", "auto",
        "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert code == 0, err
    manifest = ModelManifest.read(tmp_path / "out" / "mine")
    assert manifest.names == ("progress", "hit_rate")
    assert manifest.seed == 4
    assert manifest.fitted["threshold_chosen_on"] == "validation"
    assert not list(home.models.iterdir())


def test_a_search_comes_first(run: Run, home: Home, collection: Collection) -> None:
    code, _, err = run("fit", "stump", "--search", "5")
    assert code == 0, err
    manifest = ModelManifest.read(home.models / "stump")
    assert manifest.fitted["search"]["trials"] == 5
    assert manifest.spec.params["column"] == 0


def test_fitted_again_it_is_replaced_and_another_kind_is_not(
    run: Run, home: Home, collection: Collection
) -> None:
    assert run("fit", "stump")[0] == 0
    assert run("fit", "stump:column=1")[0] == 0
    assert ModelManifest.read(home.models / "stump").spec.params["column"] == 1
    code, _, err = run("fit", "logistic", "--name", "stump")
    assert code == 2
    assert "--force" in json.loads(err.splitlines()[-1])["message"]
    assert run("fit", "logistic", "--name", "stump", "--force")[0] == 0
    assert ModelManifest.read(home.models / "stump").spec.name == "logistic"


def test_a_fit_is_registered(run: Run, home: Home, collection: Collection, store: Store) -> None:
    code, rows, err = run("fit", "stump", track=True)
    assert code == 0, err
    assert rows[0]["registered"] == "models:/rudder-stump/1"
    assert rows[0]["not_tracked"] is None
    code, told, _ = run("models", "stump", "--track")
    assert (code, told["registered"]) == (0, "models:/rudder-stump/1")


def test_without_mlflow_the_fit_succeeds_and_says_so(
    run: Run, home: Home, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    register = registry.register

    def counted(store: Store, folder: Path) -> registry.Registered:
        asked.append(folder)
        return register(store, folder)

    monkeypatch.setattr(registry, "register", counted)
    away = ("--tracking-uri", "http://127.0.0.1:9")
    code, rows, err = run("fit", "stump", "logistic", *away, track=True)
    assert code == 0
    for row in rows[:2]:
        FittedModel.load(Path(row["folder"]))
        assert row["registered"] is None
        assert "no MLflow store answers at http://127.0.0.1:9" in row["not_tracked"]
    assert err.count("not logged: no MLflow store answers") == 1
    assert "rudder models NAME --track" in err
    assert asked == [home.models / "stump"]  # once: it may take its time to say no


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "name estimators, or write --all; there are "),
        (["stump", "--all"], 2, "name estimators, or write --all"),
        (["stumb"], 2, "did you mean 'stump'"),
        (["stump:depth=3"], 2, "no parameter 'depth'"),
        (["stump", "logistic", "--name", "x"], 2, "--name names one model, but 2"),
        (["stump", "stump:column=1"], 2, "names an estimator twice"),
        (["stump", "--name", "a/b"], 2, "cannot be named 'a/b'"),
        (["stump", "--threshold", "high"], 2, "--threshold is a share in 0..1"),
        (["stump", "--threshold", "1.5"], 2, "--threshold is a share in 0..1"),
        (["stump", "--threshold", "nan"], 2, "--threshold is a share in 0..1"),
        (["stump", "--columns", "hits"], 2, "no column is named hits; there are hit_rate"),
        (["stump", "--columns", ","], 1, "each once; found none"),
        (["stump", "--collection", "nowhere"], 2, "no collection at"),
        (["stump", "--rule", "paper"], 2, "make them with 'rudder label train'"),
        (["stump", "--tracking-uri", "nothing"], 2, "is no tracking URI"),
    ],
)
def test_wrong_use_is_told_and_writes_nothing(
    run: Run, home: Home, collection: Collection, arguments: list[str], code: int, message: str
) -> None:
    found, out, err = run("fit", *arguments, track="--tracking-uri" in arguments)
    assert (found, out) == (code, None)
    assert message in json.loads(err.splitlines()[-1])["message"]
    assert not list(home.models.iterdir())


def test_models_are_listed_with_their_facts(run: Run, home: Home, collection: Collection) -> None:
    run("fit", "stump", "logistic")
    (home.models / "broken").mkdir()
    (home.models / "broken" / "model.json").write_text("no JSON")
    code, rows, _ = run("models")
    assert code == 0
    own = {row["name"]: row for row in rows if row["place"] == "home"}
    assert list(own) == ["broken", "logistic", "stump"]
    assert own["stump"]["used"]
    assert own["stump"]["estimator"] == "stump"
    assert own["stump"]["params"] == {"column": 0, "steep": 1.0}
    assert own["stump"]["label"] == str(RULE)
    assert own["stump"]["auc"] > 0.8
    assert not own["broken"]["used"]
    assert "cannot be read" in own["broken"]["problem"]
    hidden = [row for row in rows if row["place"] == "shipped" and row["name"] == "logistic"]
    assert not any(row["used"] for row in hidden)


def test_one_model_is_told_whole(
    run: Run, home: Home, collection: Collection, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fit", "stump", "--name", "mine")
    code, told, _ = run("models", "mine")
    assert code == 0
    manifest = ModelManifest.read(home.models / "mine")
    assert {key: told[key] for key in manifest.model_dump()} == manifest.model_dump(mode="json")
    assert told["folder"] == str(home.models / "mine")
    assert main(["models", str(home.models / "mine")]) == 0
    out = capsys.readouterr().out
    assert "counterfactual:horizon=32,tie=0.002" in out
    assert "support" not in out
    code, _, err = run("models", "nobody")
    assert code == 2
    assert "Fit one with 'rudder fit'" in err
    assert run("models", "--track")[0] == 2


def test_looking_at_models_imports_nothing_heavy() -> None:
    script = (
        "import contextlib, io, sys\nfrom rudder.cli.app import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    assert main(['models']) == 0\n    assert main(['fit', '--help']) == 0\n"
        "heavy = ('torch', 'dgl', 'xgboost', 'sklearn', 'transformers', 'mlflow', 'optuna')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
