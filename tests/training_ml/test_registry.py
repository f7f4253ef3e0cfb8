"""Models in MLflow: logged once, registered, and the same answers in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rudder_training_ml import registry
from rudder_training_ml.checks import select
from rudder_training_ml.fit import Fitted, Material, default_columns
from rudder_training_ml.registry import register

from rudder.errors import ModelError, TrackingError
from rudder.home import Home
from rudder.model import FittedModel, sha256
from rudder.tracking.store import Store

FitStump = Callable[..., Fitted]


LOAD = """
import sys
from pathlib import Path
import mlflow, numpy as np, pandas as pd
uri, model, data, out = sys.argv[1:]
mlflow.set_tracking_uri(uri)
loaded = mlflow.pyfunc.load_model(model)
frame = pd.read_parquet(data)
answers = loaded.predict(frame)
shuffled = loaded.predict(frame[frame.columns[::-1]])
assert answers.equals(shuffled), "columns are found by name"
assert "rudder_plugin" not in " ".join(sys.modules)
answers.to_parquet(out)
"""


@pytest.mark.parametrize("estimator", ["logistic", "xgboost"])
def test_loaded_from_the_registry_it_answers_the_same(
    fit_stump: FitStump, material: Material, store: Store, tmp_path: Path, estimator: str
) -> None:
    import pandas as pd

    fitted = fit_stump(estimator, estimator, threshold=0.4)
    registered = register(store, fitted.folder)
    assert registered.uri == f"models:/rudder-{estimator}/1"
    assert registered.alias == "counterfactual"
    test = select(material.parts["test"], default_columns())
    pd.DataFrame(test.rows, columns=list(test.names)).to_parquet(tmp_path / "rows.parquet")
    by_alias = f"models:/{registered.name}@{registered.alias}"
    done = subprocess.run(
        [
            sys.executable, "-I", "-c", LOAD, store.uri, by_alias,
            str(tmp_path / "rows.parquet"), str(tmp_path / "answers.parquet"),
        ],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = pd.read_parquet(tmp_path / "answers.parquet")
    expected = FittedModel.load(fitted.folder).predict(test.rows, test.names)
    assert np.array_equal(answers["p_replace"].to_numpy(), expected)
    assert np.array_equal(answers["replace"].to_numpy(), expected >= 0.4)


def test_what_mlflow_is_told(fit_stump: FitStump, store: Store) -> None:
    fitted = fit_stump("mine", "stump:steep=3.0", seed=5)
    registered = register(store, fitted.folder)
    with store.session() as client:
        run = client.get_run(registered.run_id)
        version = client.get_model_version(registered.name, registered.version)
        files = {item.path for item in client.list_artifacts(registered.run_id, "model")}
        saved = Path(
            client.download_artifacts(registered.run_id, "model/artifacts/mine/model.json")
        ).read_text()
        packed = client.download_artifacts(registered.run_id, "model/MLmodel")
        told = Path(packed).read_text()
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "mine (counterfactual:horizon=32,tie=0.002)"
    assert run.data.params["estimator"] == "stump"
    assert run.data.params["estimator.steep"] == "3.0"
    assert run.data.params["examples.dropped: tie"] == "7"
    assert run.data.params["seed"] == "5"
    known = {k: v for k, v in fitted.manifest.metrics.items() if v is not None}
    assert {k: v for k, v in run.data.metrics.items() if k != "fit_seconds"} == pytest.approx(known)
    assert version.tags["rudder.label"] == "counterfactual:horizon=32,tie=0.002"
    assert version.tags["rudder.suite"] == "train"
    assert version.tags["rudder.manifest"] == sha256(fitted.folder / "model.json")
    assert saved == (fitted.folder / "model.json").read_text()
    assert {"model/MLmodel", "model/input_example.json", "model/mlflow_model.py"} <= files
    assert not [path for path in files if path.endswith(".pkl")]
    assert "signature:" in told
    assert '"hit_rate"' in told


def test_a_model_is_registered_once(fit_stump: FitStump, store: Store) -> None:
    fitted = fit_stump()
    first = register(store, fitted.folder)
    assert register(store, fitted.folder) == first
    other = fit_stump(estimator="stump:column=1")
    second = register(store, other.folder)
    assert (first.version, second.version) == ("1", "2")
    assert first.run_id != second.run_id
    with store.session() as client:
        newest = client.get_model_version_by_alias(second.name, second.alias)
        assert len(client.search_model_versions(f"name='{first.name}'")) == 2
    assert str(newest.version) == "2"


def test_a_registration_that_broke_off_is_taken_up(
    fit_stump: FitStump, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fit_stump().folder

    def broken(*args: object) -> str:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(registry, "_create_version", broken)
        with pytest.raises(TrackingError, match="disk full"):
            register(store, folder)
    assert register(store, folder).version == "1"
    with store.session() as client:
        experiment = client.get_experiment_by_name(registry.EXPERIMENT)
        assert len(client.search_runs([experiment.experiment_id])) == 1


@pytest.mark.parametrize(
    ("label", "alias"),
    [("paper", "paper"), ("my.rule", "my-rule"), ("latest", "rule-latest"), ("v2", "rule-v2")],
)
def test_aliases_are_names_that_mlflow_takes(
    fit_stump: FitStump, material: Material, label: str, alias: str
) -> None:
    training = material.training.model_copy(update={"label": label})
    fitted = fit_stump(material=replace(material, training=training))
    assert registry._alias(fitted.manifest) == alias


def test_a_store_that_is_away_is_an_error_of_tracking(fit_stump: FitStump, home: Home) -> None:
    folder = fit_stump().folder
    with pytest.raises(TrackingError, match="no MLflow store answers"):
        register(Store(home, "http://127.0.0.1:9"), folder)


def test_a_damaged_model_is_not_registered(fit_stump: FitStump, store: Store) -> None:
    folder = fit_stump().folder
    manifest = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**manifest, "threshold": 0.1}))
    with pytest.raises(ModelError, match="was edited"):
        register(store, folder)
