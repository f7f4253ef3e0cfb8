"""A model's directory appears whole, replaces its own kind only, and is listed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import rudder_training_ml.store as store
from rudder_training_ml.fit import Fitted

from rudder.errors import ModelError, PathTakenError, SpecError
from rudder.home import Home
from rudder.model import ModelManifest
from rudder.registries import MODELS

FitStump = Callable[..., Fitted]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_model_is_its_files_and_a_manifest(fit_stump: FitStump) -> None:
    fitted = fit_stump()
    assert names(fitted.folder) == ["model.json", "stump.json"]
    assert names(fitted.folder.parent) == ["stump"]
    assert fitted.size == sum(p.stat().st_size for p in fitted.folder.iterdir())
    assert fitted.folder.stat().st_mode & 0o777 == 0o755
    assert ModelManifest.read(fitted.folder) == fitted.manifest


def test_fitting_again_replaces_a_model_of_the_same_kind(fit_stump: FitStump) -> None:
    first = fit_stump()
    second = fit_stump(estimator="stump:column=1")
    assert second.folder == first.folder
    assert ModelManifest.read(first.folder).spec.params["column"] == 1
    assert names(first.folder.parent) == ["stump"]


def test_another_kind_is_replaced_by_force_only(fit_stump: FitStump) -> None:
    fit_stump("mine")
    with pytest.raises(PathTakenError, match=r"holds the model 'mine', fitted by 'stump'.*--force"):
        fit_stump("mine", "logistic")
    assert fit_stump("mine", "logistic", force=True).manifest.spec.name == "logistic"


def test_a_damaged_model_is_replaced_by_force_only(fit_stump: FitStump) -> None:
    folder = fit_stump().folder
    (folder / "stump.json").write_text("{}")
    with pytest.raises(PathTakenError, match="cannot be read"):
        fit_stump()
    fit_stump(force=True)
    ModelManifest.read(folder)


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_model_is_never_replaced(
    fit_stump: FitStump, tmp_path: Path, force: bool
) -> None:
    folder = tmp_path / "models" / "stump"
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(PathTakenError, match="is no model"):
        fit_stump(force=force)
    assert (folder / "thesis.txt").read_text() == "years of work"
    (folder / "thesis.txt").unlink()
    fit_stump(force=force)  # an empty directory is free


def test_a_link_to_a_model_is_not_replaced(fit_stump: FitStump, tmp_path: Path) -> None:
    real = fit_stump("real").folder
    (tmp_path / "models" / "stump").symlink_to(real)
    with pytest.raises(PathTakenError, match="is no model"):
        fit_stump(force=True)
    ModelManifest.read(real)


def test_a_fit_that_breaks_leaves_the_old_model(
    fit_stump: FitStump, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fit_stump()

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_sync", full)
    with pytest.raises(OSError, match="No space"):
        fit_stump(estimator="stump:column=1")
    assert ModelManifest.read(first.folder) == first.manifest
    assert names(first.folder.parent) == ["stump"]


def test_an_estimator_must_write_the_files_that_it_names(
    fit_stump: FitStump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rudder.registries import ESTIMATORS

    stump = ESTIMATORS.target("stump")
    monkeypatch.setattr(stump, "files", ("stump.json", "more.bin"))
    with pytest.raises(ModelError, match=r"names the files stump.json, more.bin, but wrote stump"):
        fit_stump()
    assert names(tmp_path / "models") == []


def test_a_model_that_answers_otherwise_when_read_back_does_not_appear(
    fit_stump: FitStump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rudder.registries import ESTIMATORS

    def lossy(self: object, folder: Path) -> None:
        text = json.dumps({"middle": round(self._middle, 2), "slope": self._slope})  # type: ignore[attr-defined]
        (folder / "stump.json").write_text(text)

    monkeypatch.setattr(ESTIMATORS.target("stump"), "save", lossy)
    with pytest.raises(ModelError, match="saved and read back answers otherwise"):
        fit_stump()
    assert names(tmp_path / "models") == []


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../x", "a b", "a:b", "-x", "é"])
def test_names_that_could_not_be_written_everywhere(name: str) -> None:
    with pytest.raises(SpecError, match="cannot be named"):
        store.check_name(name)


@pytest.mark.parametrize(
    ("library", "version", "range_"),
    [
        ("scikit-learn", "1.9.1", ">=1.7,<1.10"),
        ("scikit-learn", "1.10.0", "==1.10.*"),
        ("pytorch-tabnet", "4.1.0", "==4.1.*"),
        ("xgboost", "3.2.0", ">=3.2"),
        ("torch", "2.2.1", ">=2,<3"),
        ("never-heard-of", "7.8.9", "==7.8.*"),
    ],
)
def test_no_more_is_claimed_than_a_library_promises(
    library: str, version: str, range_: str
) -> None:
    assert store.compatible(library, version) == range_


def test_listing_tells_what_a_name_means_and_what_is_broken(
    fit_stump: FitStump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)  # models lie where fit_stump writes
    fit_stump("good")
    broken = fit_stump("broken").folder
    (broken / "model.json").write_text("{}")
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "models")
    before = dict(MODELS._entries)
    MODELS.names()
    try:
        for name in ("good", "gone"):
            if name in MODELS._entries:
                del MODELS._entries[name]
            MODELS.register(name, store.shipped, params={"name": name})
        found = {(item.name, item.place): item for item in store.stored(home)}
    finally:
        MODELS._entries.clear()
        MODELS._entries.update(before)
    assert found["good", "home"].manifest is not None
    assert found["good", "shipped"].manifest is not None
    assert "schema version None" in found["broken", "home"].problem
    assert "is missing" in found["gone", "shipped"].problem
    assert found["gone", "shipped"].folder is None
