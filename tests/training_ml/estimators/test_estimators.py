"""All estimators through the same tests: learning, weights, seeds, files, single rows."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from rudder.errors import ModelError, SpecError
from rudder.model import Estimator, Examples
from rudder.registries import ESTIMATORS
from rudder.spec import Spec

from .conftest import make_examples

SPECS = ("mlp", "tabnet", "xgboost", "svm", "svm:kernel=linear", "logistic", "forest")
QUICK = {"tabnet": {"epochs": 40}, "mlp": {"epochs": 80}}
"""Fewer epochs, so that tests take seconds."""
ADAPTABLE = ("mlp", "tabnet")
SELDOM = 1
"""Seed of fits in these tests."""


def silent(text: str, share: float) -> None:
    pass


def build(text: str, **params: Any) -> Estimator:
    spec = Spec.parse(text)
    built: Estimator = ESTIMATORS.build(
        Spec(spec.name, {**QUICK.get(spec.name, {}), **spec.params, **params})
    )
    return built


def fitted(text: str, train: Examples, validation: Examples, **params: Any) -> Estimator:
    estimator = build(text, **params)
    estimator.fit(train, validation, SELDOM, silent)
    return estimator


def accuracy(estimator: Estimator, examples: Examples) -> float:
    return float(((estimator.predict(examples.rows) >= 0.5) == examples.labels).mean())


@pytest.fixture(scope="module", params=SPECS)
def spec(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def estimator(spec: str, train: Examples, validation: Examples) -> Estimator:
    """Fitted once; a test that changes it fits its own."""
    return fitted(spec, train, validation)


def test_registered_defaults_are_the_constructors() -> None:
    for entry in ESTIMATORS:
        if not entry.target.startswith("rudder_training_ml."):
            continue
        takes = inspect.signature(ESTIMATORS.target(entry.name)).parameters
        assert entry.params == {name: p.default for name, p in takes.items()}, entry.name


def test_a_separable_problem_is_learned(spec: str) -> None:
    found = fitted(spec, make_examples(800, 3), make_examples(400, 4))
    assert accuracy(found, make_examples(400, 5)) > 0.93


def test_a_noisy_and_unbalanced_problem_is_learned(spec: str) -> None:
    make = lambda count, seed: make_examples(count, seed, noise=0.7, rare=0.15)  # noqa: E731
    found = fitted(spec, make(1200, 6), make(600, 7))
    test = make(1000, 8)
    chosen = found.predict(test.rows) >= 0.5
    caught = chosen[test.labels == 1].mean()
    spared = 1 - chosen[test.labels == 0].mean()
    # Keeping always gives 0.5, and so does any rule that ignores the rows.
    assert (caught + spared) / 2 > 0.68
    # Without balance the rare class is chosen less often.
    plain = fitted(spec, make(1200, 6), make(600, 7), balance=False)
    assert (plain.predict(test.rows) >= 0.5).mean() < chosen.mean()


def test_probabilities(estimator: Estimator, validation: Examples) -> None:
    p = estimator.predict(validation.rows)
    assert p.dtype == np.float64
    assert p.shape == (len(validation),)
    assert ((p >= 0) & (p <= 1)).all()
    assert len(np.unique(p)) > 10


def test_weights_count(spec: str) -> None:
    """Half of the rows contradict the others; the heavier half wins."""
    one, held_out = make_examples(600, 9), make_examples(300, 10)

    def contradicted(examples: Examples, weight: float) -> Examples:
        other = dataclasses.replace(
            examples,
            labels=(1 - examples.labels).astype(np.int8),
            weights=np.full(len(examples), weight),
        )
        return Examples(
            examples.names,
            *(
                np.concatenate([getattr(examples, field), getattr(other, field)])
                for field in ("rows", "labels", "weights", "groups")
            ),
        )

    for weight, wins in ((0.1, True), (10.0, False)):
        found = fitted(spec, contradicted(one, weight), contradicted(held_out, weight))
        right = accuracy(found, make_examples(300, 11))
        assert right > 0.8 if wins else right < 0.2


def test_the_validation_part_decides(spec: str, train: Examples, validation: Examples) -> None:
    """With its labels turned around, fitting ends elsewhere."""
    turned = dataclasses.replace(validation, labels=(1 - validation.labels).astype(np.int8))
    straight, other = build(spec), build(spec)
    told = straight.fit(train, validation, SELDOM, silent)
    odd = other.fit(train, turned, SELDOM, silent)
    json.dumps(told)
    assert told["validation_loss"] < 0.5
    assert told["validation_loss"] < odd["validation_loss"]
    p, q = straight.predict(validation.rows), other.predict(validation.rows)
    assert np.abs(p - q).max() > 0.05


def test_progress_moves_on(spec: str, train: Examples, validation: Examples) -> None:
    told: list[tuple[str, float]] = []
    build(spec).fit(train, validation, SELDOM, lambda text, share: told.append((text, share)))
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)
    assert all(text for text, _ in told)


def test_nothing_is_printed(
    spec: str, train: Examples, validation: Examples, capfd: pytest.CaptureFixture[str]
) -> None:
    found = fitted(spec, train, validation)
    found.predict(validation.rows)
    assert capfd.readouterr() == ("", "")


def test_the_same_seed_gives_the_same(
    spec: str, estimator: Estimator, train: Examples, validation: Examples
) -> None:
    """Also when the process has drawn random numbers in between, of which none are used up."""
    import torch

    torch.manual_seed(11)
    np.random.seed(11)
    again = fitted(spec, train, validation)
    assert (again.predict(validation.rows) == estimator.predict(validation.rows)).all()
    drawn = torch.rand(1), np.random.rand()
    torch.manual_seed(11)
    np.random.seed(11)
    assert drawn == (torch.rand(1), np.random.rand())


@pytest.mark.parametrize("seed", [0, 2**31 + 5, 2**63 + 5])
def test_any_seed(spec: str, seed: int) -> None:
    build(spec, **({"epochs": 2} if spec in ADAPTABLE else {})).fit(
        make_examples(60, 12), make_examples(60, 13), seed, silent
    )


def test_a_constant_column(spec: str, train: Examples, validation: Examples) -> None:
    """Does no harm in fitting, and none when it later moves."""

    def fixed(examples: Examples) -> Examples:
        rows = examples.rows.copy()
        rows[:, 3] = 0.3
        return dataclasses.replace(examples, rows=rows)

    found = fitted(spec, fixed(train), fixed(validation))
    assert accuracy(found, fixed(validation)) > 0.75
    assert np.isfinite(found.predict(validation.rows)).all()


def test_few_rows_of_one_group(spec: str) -> None:
    """So little that calibration cannot be cut up by groups."""
    train = make_examples(20, 14, groups=1)
    found = fitted(spec, train, make_examples(10, 15, groups=1))
    assert np.isfinite(found.predict(train.rows)).all()


def test_a_row_alone_and_among_others(estimator: Estimator, validation: Examples) -> None:
    together = estimator.predict(validation.rows)
    alone = [estimator.predict(row[None, :])[0] for row in validation.rows]
    np.testing.assert_allclose(alone, together, rtol=0, atol=1e-12)
    turned = estimator.predict(validation.rows[::-1])[::-1]
    np.testing.assert_allclose(turned, together, rtol=0, atol=1e-12)


def by_the_library(estimator: Any, rows: Any) -> Any:
    """p(replace) from the library that fitted the model."""
    if hasattr(estimator, "_network"):
        import torch

        with torch.no_grad():
            logits, _ = estimator.forward(estimator._network, estimator._inputs(rows))
        return torch.sigmoid(logits).numpy()
    if hasattr(estimator, "_booster"):
        import xgboost

        return estimator._booster.predict(xgboost.DMatrix(rows))
    if hasattr(estimator, "_scaler"):
        rows = estimator._scaler.transform(rows)
    if hasattr(estimator, "_calibration"):
        distances = estimator._model.decision_function(rows)
        return estimator._calibration.predict_proba(distances[:, None])[:, 1]
    return estimator._model.predict_proba(rows)[:, 1]


def test_answers_are_the_librarys(estimator: Estimator, train: Examples) -> None:
    """Also far outside of what was fitted to."""
    for rows in (train.rows, train.rows * 5.0, -train.rows):
        np.testing.assert_allclose(
            estimator.predict(rows), by_the_library(estimator, rows), rtol=0, atol=1e-12
        )


ALONE = """
import json, sys, time
import numpy as np
from pathlib import Path
from rudder.registries import ESTIMATORS
folder, spec = sys.argv[1:]
rows = np.load(folder + "/rows.npy")
estimator = ESTIMATORS.build(json.loads(spec))
estimator.restore(Path(folder) / "model", rows.shape[1])
np.save(folder + "/p.npy", estimator.predict(rows))
for row in rows:
    estimator.predict(row[None, :])
begun = time.process_time(), time.thread_time()
for _ in range(10):
    for row in rows:
        estimator.predict(row[None, :])
print((time.process_time() - begun[0]) / (time.thread_time() - begun[1]))
"""


def test_saved_and_restored_in_another_process(
    spec: str, estimator: Estimator, validation: Examples, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    estimator.save(model)
    assert sorted(path.name for path in model.iterdir()) == sorted(estimator.files)
    assert sum(path.stat().st_size for path in model.iterdir()) < 1_000_000
    np.save(tmp_path / "rows.npy", validation.rows)
    done = subprocess.run(
        [sys.executable, "-I", "-c", ALONE, str(tmp_path), json.dumps(Spec.parse(spec).to_dict())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (np.load(tmp_path / "p.npy") == estimator.predict(validation.rows)).all()
    # All of a single row's work is done by the thread that asks.
    assert float(done.stdout) < 1.1


def test_saved_twice(spec: str, estimator: Estimator, train: Examples, tmp_path: Path) -> None:
    """What was restored can be saved again."""
    columns = train.rows.shape[1]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    estimator.save(tmp_path / "one")
    one, two = build(spec), build(spec)
    one.restore(tmp_path / "one", columns)
    one.save(tmp_path / "two")
    two.restore(tmp_path / "two", columns)
    assert (two.predict(train.rows) == estimator.predict(train.rows)).all()


class Touches:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, int]]:
        return os.open, (str(self.path), os.O_CREAT)


def broken(spec: str, estimator: Estimator, folder: Path, damage: Callable[[Path], None]) -> str:
    """What restoring says after each of the files was damaged on its own."""
    messages = []
    for name in estimator.files:
        estimator.save(folder)
        damage(folder / name)
        with pytest.raises(ModelError) as caught:
            build(spec).restore(folder, 6)
        assert str(folder / name) in str(caught.value)
        messages.append(str(caught.value))
    return "\n".join(messages)


def test_a_pickle_in_place_of_weights(spec: str, estimator: Estimator, tmp_path: Path) -> None:
    trap = tmp_path / "made"
    content = pickle.dumps(Touches(trap))
    pickle.loads(content)
    assert trap.exists()  # the trap works
    trap.unlink()
    folder = tmp_path / "model"
    folder.mkdir()
    broken(spec, estimator, folder, lambda path: path.write_bytes(content) and None)
    assert not trap.exists()


def test_no_weights(spec: str, estimator: Estimator, tmp_path: Path) -> None:
    broken(spec, estimator, tmp_path, lambda path: path.unlink())


def test_cut_off_weights(spec: str, estimator: Estimator, tmp_path: Path) -> None:
    def cut(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])

    broken(spec, estimator, tmp_path, cut)


def test_weights_of_other_columns(spec: str, estimator: Estimator, tmp_path: Path) -> None:
    estimator.save(tmp_path)
    for columns in (5, 7):
        with pytest.raises(ModelError, match=str(tmp_path)):
            build(spec).restore(tmp_path, columns)


def test_weights_of_another_estimator(
    train: Examples, validation: Examples, tmp_path: Path
) -> None:
    """Files of one format under each other's names."""
    same = (("logistic", "forest"), ("forest", "svm"), ("svm", "logistic"), ("mlp", "tabnet"))
    for mine, other in (*same, ("tabnet", "mlp")):
        found, wanted = build(mine), build(other)
        found = fitted(mine, train, validation, **({"epochs": 1} if mine in ADAPTABLE else {}))
        found.save(tmp_path)
        (tmp_path / found.files[0]).rename(tmp_path / wanted.files[0])
        with pytest.raises(ModelError, match=wanted.files[0]):
            wanted.restore(tmp_path, 6)


@pytest.mark.parametrize(
    ("saved", "asked"),
    [
        ("svm", "svm:kernel=linear"),
        ("svm:kernel=linear", "svm"),
        ("mlp:hidden=8,epochs=1", "mlp:hidden=9"),
        ("mlp:layers=1,epochs=1", "mlp:layers=2"),
        ("tabnet:steps=2,epochs=1", "tabnet:steps=3"),
        # No shape tells these apart.
        ("tabnet:gamma=1.2,epochs=1", "tabnet:gamma=1.3"),
    ],
)
def test_weights_of_other_hyperparameters(
    saved: str, asked: str, train: Examples, validation: Examples, tmp_path: Path
) -> None:
    found = fitted(saved, train, validation)
    found.save(tmp_path)
    with pytest.raises(ModelError, match=found.files[0]):
        build(asked).restore(tmp_path, 6)


@pytest.mark.parametrize(
    "text",
    [
        "mlp:hidden=0", "mlp:hidden=65", "mlp:layers=0", "mlp:dropout=1.0", "mlp:rate=0",
        "mlp:batch=1", "mlp:epochs=0", "mlp:decay=-1", "mlp:hidden=many", "mlp:hidden=2.5",
        "tabnet:gamma=0.5", "tabnet:steps=0", "tabnet:width=33", "tabnet:sparsity=-1",
        "xgboost:rounds=0", "xgboost:rate=2", "xgboost:sample=0", "xgboost:depth=0",
        "svm:kernel=poly", "svm:c=0", "svm:gamma=-1", "svm:folds=1", "svm:rows=3",
        "logistic:c=-1", "logistic:balance=1", "forest:trees=0", "forest:depth=0",
        "forest:leaf=0", "forest:columns=0",
    ],
)  # fmt: skip
def test_hyperparameters_out_of_range(text: str) -> None:
    key = text.partition(":")[2].partition("=")[0]
    with pytest.raises(SpecError, match=key):
        ESTIMATORS.build(text)


def test_what_a_search_tries_can_be_built(spec: str) -> None:
    name = Spec.parse(spec).name
    target: type[Estimator] = ESTIMATORS.target(name)
    tried = []
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(20):
        found = target.suggest(study.ask())
        assert found
        ESTIMATORS.build(Spec(name, found))
        tried.append(json.dumps(found, sort_keys=True))
    assert len(set(tried)) > 10


def test_who_goes_on_learning(estimator: Estimator, spec: str, validation: Examples) -> None:
    assert estimator.adaptable == (spec in ADAPTABLE)
    if not estimator.adaptable:
        with pytest.raises(TypeError, match="cannot go on learning"):
            estimator.adapt(validation.rows[:1], validation.labels[:1])


@pytest.mark.parametrize("spec", ADAPTABLE, scope="function")
def test_learning_on(spec: str, train: Examples, validation: Examples, tmp_path: Path) -> None:
    import torch

    fitted(spec, train, validation).save(tmp_path)
    estimator = build(spec)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    estimator.restore(tmp_path, 6)
    row = validation.rows[:1]
    before = estimator.predict(row)[0]
    label = np.array([before < 0.5], np.int8)
    others = estimator.predict(validation.rows)
    estimator.adapt(row, label)
    little = estimator.predict(row)[0]
    assert abs(little - label[0]) < abs(before - label[0])
    # A little: one example does not turn everything around.
    assert np.abs(estimator.predict(validation.rows) - others).mean() < 0.05
    for _ in range(200):
        estimator.adapt(row, label)
    assert (estimator.predict(row)[0] >= 0.5) == label[0]
    # The training beside it draws the same numbers as without it.
    assert (torch.rand(3) == expected).all()
    again = build(spec)
    estimator.save(tmp_path)
    again.restore(tmp_path, 6)
    assert (again.predict(row) == estimator.predict(row)).all()


def test_a_single_row_is_quick(estimator: Estimator, validation: Examples) -> None:
    """Loosely: figures are for the benchmark, this is for what goes wrong by a factor of ten."""
    row = validation.rows[:1]
    estimator.predict(row)
    took = []
    for _ in range(50):
        begun = time.thread_time()
        estimator.predict(row)
        took.append(time.thread_time() - begun)
    assert np.median(took) < 0.002
